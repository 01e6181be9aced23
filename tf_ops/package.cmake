# The libraries of the package, all in one directory of it:
#   libkeras_ring.so            csrc, one runtime per process whoever loads it
#   _core.*.so                  for Python
#   libkeras_ring_tls.so        encrypts links by OpenSSL, loaded when wanted
#   libkeras_ring_tf_X_Y.so     kernels for TensorFlow X.Y
#   libkeras_ring_arena_X_Y.so  its allocator over the arena
#   libkeras_ring_xla_X_Y.so    the same under XLA
# setup.py passes the TF_* and PYTHON_* variables and the output directory.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${KERAS_RING_OUTPUT_DIR})

# Everything of csrc is exported: the two adapters are built against its
# headers, from the same sources, and nobody else links it.
add_library(keras_ring SHARED ${KERAS_RING_CSRC_SOURCES})
target_include_directories(keras_ring PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(keras_ring PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
target_compile_definitions(keras_ring PUBLIC ${TF_ABI_DEFINITIONS})
set_target_properties(keras_ring PROPERTIES CXX_VISIBILITY_PRESET default
                                            VISIBILITY_INLINES_HIDDEN OFF)

# Apart, for OpenSSL must not meet the BoringSSL in TensorFlow's libraries
# (csrc/comm/tls.cc), and need not be there.
find_package(OpenSSL 3.0)
if(OpenSSL_FOUND)
  list(TRANSFORM KERAS_RING_TLS_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/
       OUTPUT_VARIABLE tls_sources)
  add_library(keras_ring_tls SHARED ${tls_sources})
  target_link_libraries(keras_ring_tls PRIVATE keras_ring OpenSSL::SSL)
endif()

set(PYBIND11_FINDPYTHON ON)
find_package(pybind11 CONFIG REQUIRED)
pybind11_add_module(_core NO_EXTRAS ${CMAKE_SOURCE_DIR}/keras_ring/_core.cc)
target_link_libraries(_core PRIVATE keras_ring)

add_library(keras_ring_tf SHARED
  tf_ops/allgather_op.cc
  tf_ops/alltoall_op.cc
  tf_ops/barrier_op.cc
  tf_ops/broadcast_op.cc
  tf_ops/collective_kernel.cc
  tf_ops/join_op.cc
  tf_ops/op_defs.cc
  tf_ops/reduction_ops.cc
  tf_ops/tf_adapters.cc
  tf_ops/topology_op.cc)
set_target_properties(keras_ring_tf PROPERTIES
                      OUTPUT_NAME keras_ring_tf_${TF_MINOR})
# SYSTEM: TensorFlow's headers are full of warnings that are not ours.
target_include_directories(keras_ring_tf SYSTEM PRIVATE ${TF_INCLUDE_DIR})
target_compile_definitions(keras_ring_tf PRIVATE ${TF_DEFINITIONS})
target_link_directories(keras_ring_tf PRIVATE ${TF_LIBRARY_DIR})
target_link_libraries(keras_ring_tf PRIVATE keras_ring
                      -l:libtensorflow_framework.so.2)

# Apart from the ops, which TensorFlow wants to load itself, when it is there.
add_library(keras_ring_arena SHARED tf_ops/arena_allocator.cc)
set_target_properties(keras_ring_arena PROPERTIES
                      OUTPUT_NAME keras_ring_arena_${TF_MINOR})
target_include_directories(keras_ring_arena SYSTEM PRIVATE ${TF_INCLUDE_DIR})
target_compile_definitions(keras_ring_arena PRIVATE ${TF_DEFINITIONS})
target_link_directories(keras_ring_arena PRIVATE ${TF_LIBRARY_DIR})
target_link_libraries(keras_ring_arena PRIVATE keras_ring
                      -l:libtensorflow_framework.so.2)

# Apart from the kernels, which so load without XLA's symbols (they are in
# libtensorflow_cc). XLA's interface differs more from one minor version to the
# next than that of kernels; ON is for those where the tests were run.
set(KERAS_RING_XLA_MINORS 2_21)
if(TF_MINOR IN_LIST KERAS_RING_XLA_MINORS)
  set(KERAS_RING_XLA_DEFAULT ON)
else()
  set(KERAS_RING_XLA_DEFAULT OFF)
endif()
option(KERAS_RING_BUILD_XLA "collectives under jit_compile=True"
       ${KERAS_RING_XLA_DEFAULT})
if(KERAS_RING_BUILD_XLA)
  add_library(keras_ring_xla SHARED
    tf_ops/tf_adapters.cc
    tf_ops/xla_calls.cc
    tf_ops/xla_kernels.cc
    tf_ops/xla_op_defs.cc
    tf_ops/xla_ticket.cc)
  set_target_properties(keras_ring_xla PROPERTIES
                        OUTPUT_NAME keras_ring_xla_${TF_MINOR})
  # The latter two are what TensorFlow's header of fingerprints includes.
  target_include_directories(keras_ring_xla SYSTEM PRIVATE
    ${TF_INCLUDE_DIR}
    ${TF_INCLUDE_DIR}/external/highwayhash
    ${TF_INCLUDE_DIR}/external/farmhash_archive/src)
  target_compile_definitions(keras_ring_xla PRIVATE ${TF_DEFINITIONS})
  target_link_directories(keras_ring_xla PRIVATE ${TF_LIBRARY_DIR})
  target_link_libraries(keras_ring_xla PRIVATE keras_ring
                        -l:libtensorflow_cc.so.2
                        -l:libtensorflow_framework.so.2)
endif()
