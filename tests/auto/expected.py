"""The scripts, and what each of them comes to on ranks."""

import dataclasses
import re
from importlib.util import find_spec

from tests.auto.compare import (
    EXACT,
    RANDOM,
    REFUSED,
    VALUES_BOUND,
    WEIGHTS_BOUND,
)


@dataclasses.dataclass(frozen=True)
class Script:
    """A script of one process in `tests/auto/scripts`.

    Args:
        name: Its file, without `.py`.
        word: The verdict that it has to get.
        refusal: A regular expression; what `refused` has to say.
        random: Whether it draws numbers which ranks cannot repeat.
        weights_bound: How far weights may be apart, relatively.
        values_bound: Likewise returned values and files.
        shared: Whether ranks share the work, as they do unless it cannot be
            divided.
        calls_of_rank_0: Methods that a callback of its own calls, which rank 0
            alone runs.
        needs: A package without which it cannot run.
        gate: Whether the gate has it.
    """

    name: str
    word: str = EXACT
    refusal: str = ""
    random: bool = False
    weights_bound: float = WEIGHTS_BOUND
    values_bound: float = VALUES_BOUND
    shared: bool = True
    calls_of_rank_0: tuple[str, ...] = ()
    needs: str = ""
    gate: bool = False

    @property
    def runs(self) -> bool:
        return not self.needs or find_spec(self.needs) is not None

    def fits(self, word: str, reason: str) -> bool:
        return word == self.word and (
            word != REFUSED or re.search(self.refusal, reason) is not None
        )


def _random(name: str) -> Script:
    return Script(name, RANDOM, random=True)


_NO_MEAN = r"on parts of batch 1 it does not give the gradients of the whole"
_OWN_LOOP = r"in a loop of the program's own, and `--auto` does not know"
_STRATEGY = r"makes a `tf\.distribute\.MirroredStrategy`"

SCRIPTS = {
    script.name: script
    for script in (
        Script("digits_mlp", gate=True),
        Script("shuffle_seed_only"),
        Script("device_settings", gate=True),
        Script("iris_functional"),
        Script("wine_class_weight"),
        Script("diabetes_pandas"),
        Script("cancer_subclassed"),
        Script("tickets_multi_io"),
        Script("cnn_schedule_csv", gate=True),
        Script("cnn_batchnorm"),
        _random("cnn_dropout_augment"),
        Script("lstm_masking"),
        Script("tagger_timedistributed"),
        Script("text_vectorization"),
        _random("transformer_text"),
        Script("transformer_plain"),
        Script("autoencoder_anomaly"),
        _random("vae_train_step"),
        Script("vae_given_noise"),
        _random("vae_add_loss"),
        _random("gan"),
        Script("siamese_contrastive"),
        # Biases before a normalization go by rounding, and the means with them.
        Script("transfer_learning", weights_bound=1e-10),
        Script("add_loss_regularizers"),
        # Sums of halves: in float16, which no setting makes wider.
        Script("mixed_precision", weights_bound=1e-2, values_bound=1e-2),
        Script("pydataset_workers"),
        Script("tfdata_cached_shuffled"),
        _random("tfdata_unseeded"),
        Script("tfdata_endless"),
        Script("tfdata_from_generator"),
        Script("python_generator"),
        Script("callbacks_many", calls_of_rank_0=("predict",)),
        Script("tensorboard_logs", needs="tensorboard"),
        Script("schedules_adamw"),
        Script("gradient_accumulation"),
        Script("steps_per_execution_jit"),
        Script("eager_custom_metric"),
        Script("custom_loss_scalar"),
        # The last bias does not change the loss, so its gradient is rounding,
        # of which Adam makes steps.
        Script("batch_statistic_loss", weights_bound=1e-10, gate=True),
        Script("tuner_loop"),
        Script("stacking_two_models"),
        Script("save_load_resume"),
        Script("tape_tfdata", gate=True),
        Script("tape_trainer_class"),
        Script("tape_late_sum"),
        Script("tape_numpy", REFUSED, _OWN_LOOP),
        Script("train_on_batch_loop"),
        Script("train_on_batch_gan"),
        Script("mirrored_strategy", REFUSED, _STRATEGY),
        Script("predict_only"),
        Script("reinforce_bandit", REFUSED, _OWN_LOOP),
        Script("custom_train_step"),
        _random("unseeded_mlp"),
        Script("sample_weight_arrays"),
        Script("weather_timeseries"),
        Script("images_from_directory"),
        Script("distillation"),
        Script("kfold_pandas"),
        Script("recommender_embeddings"),
        Script("unet_dice"),
        Script("structured_data"),
        _random("dcgan_tape"),
        Script("odd_arguments"),
        Script("image_contrast_simclr", REFUSED, _NO_MEAN),
        Script("seq2seq_addition"),
        Script("dqn_function"),
        Script("dqn_fit_replay"),
        Script("ddpg_actor_critic"),
        Script("loss_scale_train_step"),
        Script("ema_weights"),
        Script("datagenerator_processes"),
        # A bias before a normalization, as above.
        Script("siamese_triplet", weights_bound=1e-10),
        Script("word2vec_skipgram"),
        Script("kfold_checkpoints"),
        Script("lr_finder"),
        Script("accumulation_weighted"),
        Script("tfdata_weights"),
        Script("nmt_attention"),
        Script("char_rnn"),
        Script("imbalanced_fraud"),
        _random("wgan_gp"),
        Script("append_results", REFUSED, "appends to 'results.csv' on each"),
    )
}
