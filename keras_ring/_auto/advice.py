"""What a step may do that is no mean over the rows of a batch, and what helps.

Whether a step is a model's or a function of a loop, it is the same.
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
    """Returns the line of an error that tells most.

    That is the first, but for errors in what AutoGraph has traced: these begin
    with frames, "in user code:", and end with what was wrong.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1 if lines[0].endswith(":") else 0][:300]
