# The two commands of the README, `make demo` and `make test`, and what they
# are made of. Everything is installed into .venv, in the checkout.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# TensorFlow's start-up lines drown everything else.
export TF_CPP_MIN_LOG_LEVEL ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint test-cpp fuzz fuzz-corpus test-bazel test-python \
        test-tf215 parity \
        test-package system-packages docs clean

# Installs the package and trains a small model on two ranks.
demo: $(VENV)/.installed
	$(BIN)/keras-ring run -np 2 -- $(BIN)/python examples/keras_digits.py

# Everything.
test: lint test-cpp fuzz test-bazel test-python test-tf215 test-package
	@echo "All tests passed."

# --- Installation ---

# Exactly what is tested. Wider ranges are in pyproject.toml.
$(VENV)/.dependencies: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.txt
	touch $@

NATIVE_SOURCES := CMakeLists.txt setup.py pyproject.toml csrc/sources.cmake \
  keras_ring/_core.cc $(wildcard csrc/*/*.cc csrc/*/*.h tf_ops/*)

# Against the TensorFlow that is in .venv, hence no build isolation.
$(VENV)/.installed: $(VENV)/.dependencies $(NATIVE_SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet \
	  --no-build-isolation --no-deps --editable .
	touch $@

# gtest for the C++ tests, OpenSSL for TLS, Bazel for its build of both, clang
# for libFuzzer.
SYSTEM_PACKAGES := libgtest-dev libgmock-dev libssl-dev bazel-bootstrap clang \
  libclang-rt-dev
system-packages:
	sh tools/install_system_packages.sh $(SYSTEM_PACKAGES)

# --- Tests ---

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror csrc/*/*.cc csrc/*/*.h \
	  tf_ops/*.cc tf_ops/*.h keras_ring/*.cc tests/cpp/*/*.cc \
	  tests/fuzz/*.cc tests/fuzz/*.h benchmarks/*.cc

# Under sanitizers: address with undefined, and thread. Bazel runs them plain.
test-cpp: $(VENV)/.dependencies system-packages
	PATH="$(abspath $(BIN)):$$PATH" sh tools/test_cpp.sh

# FUZZ_SECONDS for each target: few here, an hour by hand (docs/fuzzing.md).
fuzz: $(VENV)/.dependencies system-packages
	PATH="$(abspath $(BIN)):$$PATH" sh tools/fuzz.sh

# Makes the seeds again, after a change of what is sent.
fuzz-corpus: $(VENV)/.dependencies system-packages
	PATH="$(abspath $(BIN)):$$PATH" sh tools/make_fuzz_corpus.sh

test-bazel: system-packages
	bazel --batch test //...

test-python: $(VENV)/.installed
	$(BIN)/python -m pytest

# The wheel, as a user gets it: built alone, installed elsewhere, run.
test-package: $(VENV)/.installed
	PATH="$(abspath $(BIN)):$$PATH" sh tools/test_package.sh $(BIN)/python

# --- TensorFlow 2.15, the last with Keras 2 and tf.estimator ---

VENV_TF215 := .venv-tf215
BIN_TF215 := $(VENV_TF215)/bin

$(VENV_TF215)/.dependencies: requirements-tf215.txt
	$(PYTHON) -m venv $(VENV_TF215)
	$(BIN_TF215)/python -m pip install --quiet -r requirements-tf215.txt
	touch $@

# A copy, built in a directory of its own: the libraries in the checkout are
# those of .venv.
$(VENV_TF215)/.installed: $(VENV_TF215)/.dependencies $(NATIVE_SOURCES) \
  $(wildcard keras_ring/*.py keras_ring/*/*.py)
	DIST_EXTRA_CONFIG=tools/tf215.cfg PATH="$(abspath $(BIN_TF215)):$$PATH" \
	  $(BIN_TF215)/python -m pip install --quiet --no-build-isolation \
	  --no-deps --force-reinstall .
	touch $@

# A safe path, for the checkout holds a keras_ring, too.
test-tf215: $(VENV_TF215)/.installed
	PYTHONSAFEPATH=1 $(BIN_TF215)/python -m pytest -c tests/keras2/pytest.ini \
	  --rootdir=. tests/keras2

# --- Tables ---

# Ranks against one process: weights after 30 steps, and metrics.
parity: $(VENV)/.installed $(VENV_TF215)/.installed
	$(BIN)/python -m tests.keras.parity
	$(BIN)/python -m tests.keras.metric_table
	PYTHONSAFEPATH=1 $(BIN_TF215)/python tests/keras2/parity.py

# --- Other ---

# The generated pages.
docs: $(VENV)/.installed
	$(BIN)/python tools/generate_environment_page.py docs/environment.md
	$(BIN)/python tools/generate_collectives_page.py docs/collectives.md

clean:
	rm -rf build dist *.egg-info keras_ring/*.so $(VENV) $(VENV_TF215)
