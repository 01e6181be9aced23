#!/bin/sh
# Builds the source archive, which must have what the build reads, and the wheel;
# installs it alone into an empty directory, and checks that
# it works from there, not from the checkout. $1: the Python to use.
set -eu

python=$(realpath -s "$1")
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

"$python" setup.py --quiet egg_info --egg-base "$directory" \
  sdist --dist-dir "$directory"
"$python" tools/check_source_archive.py "$directory"/keras_ring-*.tar.gz \
  build/core build/python-* build/tensorflow-*
# What is compiled is the same; that CMake finds it all is to be seen at once.
mkdir "$directory/sources"
tar -xzf "$directory"/keras_ring-*.tar.gz -C "$directory/sources" \
  --strip-components=1
cmake -S "$directory/sources" -B "$directory/core" -G Ninja >/dev/null

"$python" -m pip wheel --quiet --no-build-isolation --no-deps \
  --wheel-dir "$directory" .
"$python" -m pip install --quiet --no-deps --target "$directory/site" \
  "$directory"/keras_ring-*.whl

cd "$directory"
cat >job.py <<'SCRIPT'
import keras_ring as kr
import tensorflow as tf

kr.init()
assert kr.__file__.startswith("DIRECTORY"), kr.__file__
total = kr.allreduce(tf.ones([3]), kr.Sum, name="x").numpy()
assert total.tolist() == [2.0, 2.0, 2.0], total
assert kr.xla_built()
total = tf.function(
    lambda x: kr.allreduce(x, kr.Sum, name="x"), jit_compile=True
)(tf.ones([3])).numpy()
assert total.tolist() == [2.0, 2.0, 2.0], total
print("the wheel works")
SCRIPT
sed -i "s|DIRECTORY|$directory|" job.py
PYTHONPATH="$directory/site" "$python" -m keras_ring run -np 2 -- \
  "$python" job.py
PYTHONPATH="$directory/site" "$python" -m keras_ring bench allreduce \
  --max-bytes=4 --iterations=1
