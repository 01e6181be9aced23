"""Trainings of PyTorch on ranks, beside the same training of one process.

Each rank trains two copies of a model: one on its part of the batch by a
`DistributedOptimizer`, and one by itself on the whole batch. They must agree.
"""

import copy

import torch
from torch import nn

import keras_ring.torch as kr
from keras_ring import errors
from keras_ring.core import notices

ROWS = 24  # for 2, 3 and 4 ranks
EXACT = 1e-12


def init():
    torch.set_num_threads(1)
    kr.init()
    torch.manual_seed(7)
    return kr.rank(), kr.size()


def dense():
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2)).double()


def wide():
    """A model with a weight of more than a mebibyte between small ones."""
    return nn.Sequential(
        *(nn.Linear(6, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh()),
        nn.Linear(400, 2),
    ).double()


def batches(steps, *shape):
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        yield (
            torch.randn(ROWS, *shape, generator=generator, dtype=torch.float64),
            torch.randn(ROWS, 2, generator=generator, dtype=torch.float64),
        )


def part(tensor):
    return tensor[kr.rank() :: kr.size()]


def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


def plain(model, optimizer, x, y, is_ours):
    optimizer.zero_grad()
    loss_of(model, x, y).backward()
    optimizer.step()


def trained(
    make_model=dense,
    make_optimizer=lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
    step=plain,
    shape=(6,),
    steps=20,
    tolerance=EXACT,
    named=True,
    **settings,
):
    """Trains both copies. Returns the largest difference of a weight."""
    init()
    ours = make_model()
    if kr.rank() == 1:  # begins with other values than rank 0
        with torch.no_grad():
            for parameter in ours.parameters():
                parameter.add_(1.0)
    optimizer = make_optimizer(ours.parameters())
    given = kr.DistributedOptimizer(
        optimizer, ours.named_parameters() if named else None, **settings
    )
    assert given is optimizer
    alone = copy.deepcopy(ours)
    reference = make_optimizer(alone.parameters())
    for x, y in batches(steps, *shape):
        step(ours, optimizer, part(x), part(y), True)
        step(alone, reference, x, y, False)
    worst = 0.0
    for one, other in zip(ours.parameters(), alone.parameters(), strict=True):
        worst = max(worst, (one - other).abs().max().item())
        everyone = kr.allgather(one.detach()[None])
        assert all(torch.equal(everyone[0], each) for each in everyone)
    assert worst <= tolerance, worst
    return worst


def optimizers():
    for make in (
        lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, nesterov=True),
        lambda ps: torch.optim.Adam(ps, 0.01),
        lambda ps: torch.optim.AdamW(ps, 0.01, weight_decay=0.1),
        lambda ps: torch.optim.RMSprop(ps, 0.01),
        lambda ps: torch.optim.Adagrad(ps, 0.1),
    ):
        trained(make_optimizer=make, steps=50)
    return True


def ways_to_divide():
    trained(named=False)
    trained(num_groups=2)
    trained(groups=3)
    trained(gradient_predivide_factor=2.0, tolerance=1e-11)
    trained(compression=kr.Compression.bf16, tolerance=0.02)
    init()
    model = dense()
    optimizer = kr.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1),
        groups=[[model[0].weight, model[2].bias]],
    )
    loss_of(model, *map(part, next(batches(1, 6)))).backward()
    optimizer.step()
    return True


def clipped(model, optimizer, x, y, is_ours):
    optimizer.zero_grad()
    loss_of(model, x, y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()


def synchronized(model, optimizer, x, y, is_ours):
    """As programs of Horovod clip."""
    optimizer.zero_grad()
    loss_of(model, x, y).backward()
    if is_ours:
        optimizer.synchronize()
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    if is_ours:
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        optimizer.step()


def halves(model, optimizer, x, y, is_ours):
    """Two backward passes, each of which is reduced."""
    optimizer.zero_grad()
    middle = len(x) // 2
    for rows in (slice(None, middle), slice(middle, None)):
        (loss_of(model, x[rows], y[rows]) / 2).backward()
    optimizer.step()


def halves_without_sync(model, optimizer, x, y, is_ours):
    optimizer.zero_grad()
    middle = len(x) // 2
    first, second = slice(None, middle), slice(middle, None)
    if is_ours:
        with optimizer.no_sync():
            (loss_of(model, x[first], y[first]) / 2).backward()
    else:
        (loss_of(model, x[first], y[first]) / 2).backward()
    (loss_of(model, x[second], y[second]) / 2).backward()
    optimizer.step()


def only_without_sync(model, optimizer, x, y, is_ours):
    """No backward pass is reduced before the step."""
    optimizer.zero_grad()
    if is_ours:
        with optimizer.no_sync():
            loss_of(model, x, y).backward()
    else:
        loss_of(model, x, y).backward()
    optimizer.step()


def by_closure(model, optimizer, x, y, is_ours):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        return kr.allreduce(loss.detach()) if is_ours else loss

    optimizer.step(closure)


def through_an_error(model, optimizer, x, y, is_ours):
    """A backward pass ends in an error, and the next one trains."""
    _fail(model, optimizer, x, y)
    plain(model, optimizer, x, y, is_ours)


def on_top_of_an_error(model, optimizer, x, y, is_ours):
    """The next one adds to the gradients that were there by then."""
    _fail(model, optimizer, x, y)
    loss_of(model, x, y).backward()
    optimizer.step()


def refused_after_an_error(model, optimizer, x, y, is_ours):
    """What is being averaged cannot be added to."""
    _fail(model, optimizer, x, y)
    try:
        loss_of(model, x, y).backward()
    except RuntimeError as error:
        assert is_ours and "call `optimizer.zero_grad()`" in str(error), error
    else:
        assert not is_ours
    plain(model, optimizer, x, y, is_ours)


def _fail(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = loss_of(model, x, y)
    hook = model[0].weight.register_hook(_fails)
    try:
        loss.backward()
    except ValueError:
        pass
    hook.remove()


def _fails(_):
    raise ValueError("on purpose")


def ways_to_step():
    for step in (
        clipped,
        synchronized,
        halves,
        halves_without_sync,
        only_without_sync,
        through_an_error,
    ):
        trained(step=step)
        trained(wide, step=step, steps=4)
    trained(step=on_top_of_an_error)
    trained(wide, step=refused_after_an_error, steps=4)
    trained(
        step=halves, backward_passes_per_step=2, groups=2, compression=_Exact()
    )
    trained(
        step=by_closure,
        make_optimizer=lambda ps: torch.optim.LBFGS(ps, 0.1, max_iter=4),
        steps=5,
        tolerance=1e-9,
    )
    return True


class _Exact:
    """A compression of the program's own, which loses nothing."""

    def compress(self, tensor):
        return tensor.clone(), None

    def decompress(self, tensor, _):
        return tensor


class Branches(nn.Module):
    """Parameters that get no gradient on some ranks, or on none."""

    def __init__(self, used_by):
        super().__init__()
        self.common = nn.Linear(6, 4)
        self.sometimes = nn.Linear(4, 2)
        self.always = nn.Linear(4, 2)
        self.never = nn.Linear(4, 2)
        self.used_by = used_by
        self.double()

    def forward(self, x):
        x = torch.tanh(self.common(x))
        y = self.always(x)
        return y + self.sometimes(x) if self.used_by(x) else y


def unused_parameters():
    """Those that no rank uses stay as they are, whatever the optimizer."""
    _rank, size = init()
    model = Branches(lambda x: len(x) == ROWS or kr.rank() == 0)
    never = copy.deepcopy(model.never.state_dict())
    alone = copy.deepcopy(model)
    # Of one process, only the rows of rank 0 go through the branch.
    make = lambda ps: torch.optim.AdamW(ps, 0.05, weight_decay=0.3)  # noqa: E731
    optimizer = kr.DistributedOptimizer(
        make(model.parameters()), model.named_parameters()
    )
    alone.load_state_dict(model.state_dict())
    reference = make(alone.parameters())
    never = copy.deepcopy(model.never.state_dict())
    for x, y in batches(20, 6):
        optimizer.zero_grad()
        loss_of(model, part(x), part(y)).backward()
        assert model.never.weight.grad is None
        assert model.sometimes.weight.grad is not None
        optimizer.step()
        reference.zero_grad()
        hidden = torch.tanh(alone.common(x))
        of_rank_0 = (torch.arange(ROWS) % size == 0)[:, None].double()
        out = alone.always(hidden) + alone.sometimes(hidden) * of_rank_0
        nn.functional.mse_loss(out, y).backward()
        reference.step()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        assert (one - other).abs().max() <= EXACT
    for name, value in model.never.state_dict().items():
        assert torch.equal(value, never[name])
    return True


def rank_without_data():
    """A rank that has no batch in a step takes part by `step()` alone."""
    rank, size = init()
    model = dense()
    optimizer = kr.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model.named_parameters()
    )
    alone = copy.deepcopy(model)
    reference = torch.optim.SGD(alone.parameters(), 0.1)
    for x, y in batches(4, 6):
        optimizer.zero_grad()
        if rank == 0:
            loss_of(model, x, y).backward()
        optimizer.step()
        reference.zero_grad()
        (loss_of(alone, x, y) / size).backward()
        reference.step()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        assert (one - other).abs().max() <= EXACT
    return True


def turned_on_later():
    """Layers that are trained from the second half on, in two ways."""

    def freezes():
        model = dense()
        model[0].requires_grad_(False)
        return model

    counts = {}

    def step(model, optimizer, x, y, is_ours):
        counts[is_ours] = counts.get(is_ours, 0) + 1
        if counts[is_ours] == 8:
            model[0].requires_grad_(True)
        plain(model, optimizer, x, y, is_ours)

    trained(make_model=freezes, step=step)

    init()
    model, alone = dense(), dense()
    alone.load_state_dict(model.state_dict())
    pairs = []
    for each in (model, alone):
        optimizer = torch.optim.SGD(each[2].parameters(), 0.1)
        if each is model:
            kr.DistributedOptimizer(optimizer)
            alone.load_state_dict(model.state_dict())
        pairs.append((each, optimizer))
    for i, (x, y) in enumerate(batches(10, 6)):
        for each, optimizer in pairs:
            if i == 5:
                optimizer.add_param_group({"params": each[0].parameters()})
            ours = each is model
            optimizer.zero_grad()
            xs, ys = (part(x), part(y)) if ours else (x, y)
            loss_of(each, xs, ys).backward()
            optimizer.step()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        assert (one - other).abs().max() <= EXACT
    return True


def two_optimizers():
    """Of one loss, with parameters of the same names."""
    init()
    generator, critic = dense(), nn.Linear(2, 2).double()
    copies = copy.deepcopy((generator, critic))
    ours = [
        kr.DistributedOptimizer(
            torch.optim.SGD(m.parameters(), 0.1), m.named_parameters()
        )
        for m in (generator, critic)
    ]
    for m, other in zip((generator, critic), copies, strict=True):
        other.load_state_dict(m.state_dict())
    alone = [torch.optim.SGD(m.parameters(), 0.1) for m in copies]
    for x, y in batches(10, 6):
        for optimizers, first, second, take in (
            (ours, generator, critic, part),
            (alone, *copies, lambda t: t),
        ):
            for optimizer in optimizers:
                optimizer.zero_grad()
            nn.functional.mse_loss(second(first(take(x))), take(y)).backward()
            for optimizer in optimizers:
                optimizer.step()
    for m, other in zip((generator, critic), copies, strict=True):
        for one, two in zip(m.parameters(), other.parameters(), strict=True):
            assert (one - two).abs().max() <= EXACT
    return True


def schedules_and_scaling():
    """A scheduler that was made before, and a scaler of gradients."""
    schedulers = {}

    def make(parameters):
        optimizer = torch.optim.SGD(parameters, 0.5)
        schedulers[optimizer] = torch.optim.lr_scheduler.ExponentialLR(
            optimizer, 0.7
        )
        return optimizer

    def step(model, optimizer, x, y, is_ours):
        plain(model, optimizer, x, y, is_ours)
        schedulers[optimizer].step()

    trained(make_optimizer=make, step=step)

    scalers = {}

    def scaled(model, optimizer, x, y, is_ours):
        scaler = scalers.setdefault(
            is_ours, torch.amp.GradScaler("cpu", init_scale=2.0**16)
        )
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        if len(scalers) == 2 and scaler.get_growth_interval() == 1999:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()

    trained(step=scaled, tolerance=1e-10)

    # One rank has a value that is too large: no rank makes the step.
    rank, _ = init()
    model = dense()
    optimizer = kr.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 1.0)
    )
    scaler = torch.amp.GradScaler("cpu")
    before = copy.deepcopy(model.state_dict())
    x, y = map(part, next(batches(1, 6)))
    factor = float("inf") if rank == 0 else 1.0
    scaler.scale(loss_of(model, x, y) * factor).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**15
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    return True


def autocast():
    def step(model, optimizer, x, y, is_ours):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, x.float(), y.float())
        loss.backward()
        optimizer.step()

    trained(make_model=lambda: dense().float(), step=step, tolerance=0.01)
    return True


def convolutions():
    """Weights in `channels_last`, and batch normalization of all ranks."""

    def make():
        return nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 4 * 4, 2),
        ).double()

    def last():
        model = make().to(memory_format=torch.channels_last)
        return kr.SyncBatchNorm.convert_sync_batchnorm(model)

    trained(make_model=last, shape=(3, 6, 6), tolerance=1e-10)
    return True


class Kept(nn.Module):
    """Has buffers of several dtypes, one of which its gradient needs."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 4), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)
        self.register_buffer("scale", torch.rand(4))
        self.register_buffer("seen", torch.tensor([False] * 3))
        self.register_buffer("last", torch.zeros(()), persistent=False)
        self.double()

    def forward(self, x):
        if self.training:
            self.seen[self.norm.num_batches_tracked % 3] = True
            self.last.copy_(x.detach().sum())
        return self.head(self.norm(self.first(x)) * self.scale)


def buffers():
    """Those of rank 0 are those of all ranks, whose batches are others."""
    rank, _ = init()
    torch.manual_seed(rank)
    model = Kept()
    optimizer = kr.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model.named_parameters()
    )
    handle = kr.broadcast_buffers(model)
    of_rank_0 = copy.deepcopy(model)
    of_rank_0._forward_hooks.clear()
    given = list(batches(8, 6))
    for x, y in given[:5]:
        for mine, reference in zip(
            model.parameters(), of_rank_0.parameters(), strict=True
        ):
            reference.data.copy_(mine.data)
        of_rank_0(x[:: kr.size()])
        plain(model, optimizer, part(x), part(y), True)
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, of_rank_0.get_buffer(name)), name
    if rank == 0:  # shares nothing, so one rank may do it alone
        with torch.no_grad():
            model(x)
        model.eval()
        model(x)
        model.train()
    handle.remove()
    before = model.norm.running_mean.clone()
    model(part(x) + rank)
    everyone = kr.allgather(model.norm.running_mean[None])
    assert not torch.equal(everyone[0], everyone[1])
    assert not torch.equal(before, model.norm.running_mean)
    own = kr.broadcast_buffers(model, kr.size() - 1)
    everyone = kr.allgather(model.norm.running_mean[None])
    assert all(torch.equal(everyone[-1], each) for each in everyone)
    own.remove()
    return True


def checkpointed():
    """Activations that are computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.first, self.second = dense(), nn.Linear(2, 2).double()
            self.reentrant = reentrant

        def forward(self, x):
            x = x.requires_grad_()
            x = checkpoint(self.first, x, use_reentrant=self.reentrant)
            return self.second(x)

    for reentrant in (False, True):
        trained(make_model=lambda r=reentrant: Model(r))
    return True


def embeddings():
    """Sparse gradients, gathered or as dense ones; one rank has none."""
    rank, size = init()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 4, sparse=True)
            self.head = nn.Linear(4, 2)
            self.double()

        def forward(self, x):
            return self.head(self.table(x).sum(1))

    for as_dense in (False, True):
        torch.manual_seed(1)
        model = Model()
        optimizer = kr.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.5),
            model.named_parameters(),
            sparse_as_dense=as_dense,
        )
        alone = copy.deepcopy(model)
        reference = torch.optim.SGD(alone.parameters(), 0.5)
        for i, (x, y) in enumerate(batches(10, 3)):
            words = (x.abs() * 100).long() % 20
            optimizer.zero_grad()
            has_data = i % 3 > 0 or rank > 0
            if has_data:
                loss_of(model, part(words), part(y)).backward()
            optimizer.step()
            reference.zero_grad()
            rows = torch.arange(ROWS) % size
            keep = (rows > 0) | torch.tensor(i % 3 > 0)
            (
                loss_of(alone, words[keep], y[keep]) * keep.double().mean()
            ).backward()
            reference.step()
        for one, two in zip(
            model.parameters(), alone.parameters(), strict=True
        ):
            assert (one - two).abs().max() <= EXACT
    return True


def states():
    """Parameters and state of rank 0, which has trained."""
    rank, _size = init()
    torch.manual_seed(rank)
    for make in (
        lambda ps: torch.optim.Adam(ps, 0.01 * (rank + 1), amsgrad=True),
        lambda ps: torch.optim.SGD(ps, 0.01 * (rank + 1), momentum=0.9),
        lambda ps: torch.optim.SGD(ps, 0.01 * (rank + 1)),
    ):
        model = dense()
        optimizer = make(model.parameters())
        if rank == 0:
            for x, y in batches(3, 6):
                plain(model, optimizer, x, y, False)
        kr.broadcast_parameters(model, root_rank=0)
        kr.broadcast_optimizer_state(optimizer, root_rank=0)
        assert optimizer.param_groups[0]["lr"] == 0.01
        state = optimizer.state_dict()
        for one in kr.allgather_object((state, model.state_dict())):
            assert _same(one, (state, model.state_dict()))
    return True


def apart(what):
    """Returns the error when one rank changes its model, and the step."""
    rank, _ = init()
    model = dense()
    optimizer = kr.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model.named_parameters()
    )
    try:
        for step, (x, y) in enumerate(batches(100, 6), 1):
            if step == 10 and rank == 1:
                with torch.no_grad():
                    if what == "parameter":
                        model[2].bias[1] += 1e-9
                    else:
                        optimizer.param_groups[0]["lr"] = 0.2
            plain(model, optimizer, part(x), part(y), True)
    except errors.ConsistencyError as error:
        return step, str(error)


def _same(one, two):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(
            _same(one[k], two[k]) for k in one
        )
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(_same, one, two))
    return one == two


def _error_of(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def wrong_optimizers():
    """Returns the errors of wrong arguments, by what is wrong."""
    rank, _size = init()
    model = dense()

    def made(named=None, optimizer=None, **settings):
        optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
        return _error_of(
            lambda: kr.DistributedOptimizer(optimizer, named, **settings)
        )

    named = list(model.named_parameters())
    distributed = kr.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), op=kr.Sum
    )
    found = {
        "type": made(optimizer="adam"),
        "twice": made(optimizer=distributed),
        "names": made([("same", p) for _, p in named]),
        "missing": made(named[:1]),
        "pairs": made(model.parameters()),
        "passes": made(backward_passes_per_step=0),
        "groups": made(groups=-1),
        "grouped twice": made(groups=[[named[0][1]], [named[0][1]]]),
        "predivide": made(op=kr.Sum, gradient_predivide_factor=2.0),
        "ranks": made([(f"{n}.{rank}", p) for n, p in named]),
    }
    x, y = map(part, next(batches(1, 6)))

    def again():
        for _ in range(2):
            loss_of(model, x, y).backward()

    found["again"] = _error_of(again)
    return found


def steps_alone():
    """Returns what is said of optimizers that are, and are not, distributed."""
    init()
    said = []
    notices.warn = said.append
    found = {}
    for name in ("plain", "by_hand", "distributed", "few"):
        model = dense()
        # A text is logged once.
        kind = type(name, (torch.optim.Adagrad,), {})
        optimizer = kind(model.parameters(), 0.1)
        if name == "distributed":
            kr.DistributedOptimizer(optimizer, model.named_parameters())
        for x, y in batches(2 if name == "few" else 5, 6):
            optimizer.zero_grad()
            loss_of(model, part(x), part(y)).backward()
            if name == "by_hand":
                for parameter in model.parameters():
                    kr.allreduce_(parameter.grad)
            optimizer.step()
        found[name], said[:] = list(said), []
    return found


def lost():
    """Returns the error of the ranks that are left in a training."""
    import os
    import signal
    import time

    rank, _size = init()
    model = dense()
    optimizer = kr.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1)
    )
    try:
        for i, (x, y) in enumerate(batches(1000, 6)):
            began = time.monotonic()
            if i == 5 and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            plain(model, optimizer, part(x), part(y), True)
    except errors.UnavailableError as error:
        return str(error), time.monotonic() - began
