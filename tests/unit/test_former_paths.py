"""Pickles of earlier versions name modules by their former paths."""

import importlib
import pickle

import pytest

import keras_ring as kr
from keras_ring import _former_paths


@pytest.mark.parametrize("path", _former_paths._PATHS)
def test_a_former_path_is_the_module_of_now(path):
    now = importlib.import_module(f"keras_ring.{_former_paths._PATHS[path]}")
    assert importlib.import_module(path) is now


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"ckeras_ring._ops.reduce_ops\nReduceOp\n.", kr.ReduceOp),
        (
            b"ckeras_ring._runtime.process_sets\nglobal_process_set\n.",
            kr.global_process_set,
        ),
        (b"ckeras_ring._ops.compression\nCompression\n.", kr.Compression),
        (
            b"ckeras_ring.callbacks.broadcast\n"
            b"BroadcastGlobalVariablesCallback\n.",
            kr.callbacks.BroadcastGlobalVariablesCallback,
        ),
    ],
)
def test_what_pickles_name(written, read):
    assert pickle.loads(written) is read


@pytest.mark.parametrize("name", ["_ops.names", "callbacks.no"])
def test_other_former_paths_are_gone(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"keras_ring.{name}")
