# What every build of ours has in common: language, warnings, compiler cache.
# Included by the core (CMakeLists.txt) and by the adapters for one TensorFlow
# (tf_ops/CMakeLists.txt), after project().
get_filename_component(KERAS_RING_ROOT ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Contraction: a multiplication fused with an addition rounds once instead of
# twice, which gives other bits on processors that can fuse.
add_compile_options(-Wall -Wextra -ffp-contract=off)
# The annotations of csrc/base/mutex.h; g++ does not know them.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wthread-safety -Werror=thread-safety)
endif()

# ccache, if it is installed. Paths below the root are hashed as relative ones,
# so that another checkout finds what this one compiled.
find_program(KERAS_RING_CCACHE ccache)
if(KERAS_RING_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${KERAS_RING_ROOT}
      CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros
      ${KERAS_RING_CCACHE})
  # Both make a precompiled header comparable; the names are the compilers'.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(KERAS_RING_PCH_OPTIONS -Xclang -fno-pch-timestamp)
  else()
    set(KERAS_RING_PCH_OPTIONS -fpch-preprocess)
  endif()
endif()
