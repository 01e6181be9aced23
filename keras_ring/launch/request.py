"""The unchecked request of a user of `keras-ring run` or `kr.run`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# As many ranks as the hosts have slots, or this host GPUs or cores.
AUTOMATIC = "auto"


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The options and the command of `keras-ring run`, unchecked.

    Args:
        command: Tuple of strings, the program and its arguments.
        num_ranks: Value of `-np`, an integer or `AUTOMATIC`.
        hosts: Value of `-H`.
        hostfile: Value of `--hostfile`.
        ssh_port: Value of `--ssh-port`.
        ssh_identity: Value of `--ssh-identity`.
        rsh: Value of `--rsh`.
        interface: Value of `--interface`.
        port_range: Value of `--port-range`.
        output_dir: Value of `--output-dir`.
        output_max_bytes: Value of `--output-max-bytes`.
        output_backups: Value of `--output-backups`.
        prefix_timestamp: Whether `--prefix-timestamp` was given.
        stdout: Value of `--stdout`.
        variables: Values of `--env`.
        start_timeout: Value of `--start-timeout`.
        log_level: Value of `--log-level`.
        log_format: Value of `--log-format`.
        tls: `True` for `--tls`, `False` for `--no-tls`, `None` for neither.
        timeline: Value of `--timeline`.
        metrics_port: Value of `--metrics-port`.
        metrics_host: Value of `--metrics-host`.
        autotune: Whether `--autotune` was given.
        autotune_log: Value of `--autotune-log-file`.
        autotune_warmup_samples: Value of `--autotune-warmup-samples`.
        autotune_steps_per_sample: Value of `--autotune-steps-per-sample`.
        autotune_max_samples: Value of `--autotune-bayes-opt-max-samples`.
        auto: Value of `--auto`, `"1"` or `"explain"`, or `None`.
        auto_batch: Value of `--batch`.
        auto_learning_rate: Value of `--scale-learning-rate`.
        auto_warmup_epochs: Value of `--warmup-epochs`.
        time_limits: Values of options such as `--grace-period`, by the names
            of their variables.
        elastic: Whether `--elastic` was given.
        min_ranks: Value of `--min-np`, or `None`.
        max_ranks: Value of `--max-np`, or `None`.
        reset_limit: Value of `--reset-limit`, or `None`.
        host_discovery_script: Value of `--host-discovery-script`, or `None`.
        threads: Value of `--threads`, or `None`.
        bind: Whether `--bind` was given.
        fold: Whether `--no-fold` was not given.
        in_allocation: Whether the nodes of a Slurm allocation are the hosts if
            no hosts are given.
    """

    command: tuple[str, ...]
    num_ranks: int | str | None = None
    hosts: str | None = None
    hostfile: str | None = None
    ssh_port: int | None = None
    ssh_identity: str | None = None
    rsh: str | None = None
    interface: str | None = None
    port_range: str | None = None
    output_dir: str | None = None
    output_max_bytes: str | None = None
    output_backups: int | None = None
    prefix_timestamp: bool = False
    stdout: str | None = None
    variables: tuple[str, ...] = ()
    start_timeout: str | None = None
    log_level: str | None = None
    log_format: str | None = None
    tls: bool | None = None
    timeline: str | None = None
    metrics_port: int | None = None
    metrics_host: str | None = None
    autotune: bool = False
    autotune_log: str | None = None
    autotune_warmup_samples: str | None = None
    autotune_steps_per_sample: str | None = None
    autotune_max_samples: str | None = None
    auto: str | None = None
    auto_batch: str | None = None
    auto_learning_rate: str | None = None
    auto_warmup_epochs: str | None = None
    time_limits: Mapping[str, str] = field(default_factory=dict)
    elastic: bool = False
    min_ranks: str | None = None
    max_ranks: str | None = None
    reset_limit: str | None = None
    host_discovery_script: str | None = None
    threads: int | None = None
    bind: bool = False
    fold: bool = True
    in_allocation: bool = False
