"""Advice for steps that are no mean over the rows of a batch.

The reasons are the same for steps of models and of custom loops.
"""

REASONS = (
    "Its loss may be a sum over the rows and no mean, or compare rows with "
    "each other, or be divided by what is not their number; or it clips its "
    "gradients, which the optimizer is to do (`global_clipnorm`); or it makes "
    "rows of its own, as many as the whole batch has "
    "(`tf.random.normal((batch_size, ...))`): take as many as it is given, "
    "`tf.shape(x)[0]`; or a `TextVectorization` makes rows as long as the "
    "longest of a batch (`output_sequence_length`). "
)
IN_MODEL = (
    "Make it a mean over rows (`tf.reduce_mean`), or give the function to "
    "`compile(loss=...)`, where it is computed of all rows, whatever it is; "
    "or train by explicit lines, where the program says what is averaged: "
    "`kr.data.shard`, `kr.DistributedOptimizer`."
)
IN_LOOP = (
    "Make it a mean over rows (`tf.reduce_mean`), or take a loss of "
    "`keras.losses`; or train by explicit lines, where the program says what "
    "is averaged: `kr.data.shard`, `kr.DistributedGradientTape`."
)


def summary(error: Exception) -> str:
    """Returns the most informative line of an error.

    That is the first line, except for errors in code that AutoGraph has traced:
    these begin with frames, "in user code:", and end with the message.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1 if lines[0].endswith(":") else 0][:300]
