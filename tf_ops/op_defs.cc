// The ops' signatures and shape functions, and nothing else.
//
// All are stateful: TensorFlow must not fold one whose input is a constant,
// merge twins, or drop one whose result is unused, because the other ranks
// wait for it. What that costs (automatic control dependencies would run them
// one after another) is taken back in keras_ring/_graph.py.
//
// All are marked as communication, or TensorFlow would turn kUnavailable (a
// lost peer) into kInternal.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace keras_ring {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The i-th output is shaped as the i-th input.
absl::Status SameShapes(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    context->set_output(i, context->input(i));
  }
  return absl::OkStatus();
}

absl::Status AnyRows(InferenceContext* context) {
  ShapeHandle input;
  TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(0), 1, &input));
  ShapeHandle output;
  TF_RETURN_IF_ERROR(
      context->ReplaceDim(input, 0, context->UnknownDim(), &output));
  context->set_output(0, output);
  return absl::OkStatus();
}

#define KR_REDUCIBLE \
  "{uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double}"
#define KR_MOVABLE                                                             \
  "{uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, " \
  "bool, complex64, complex128}"

REGISTER_OP("KerasRingAllreduce")
    .Attr("T: list(" KR_REDUCIBLE ") >= 1")
    .Attr("tensor_name: string")
    .Attr("reduce_op: int")
    // The bits of a double: attributes of type float have 32 bits only.
    .Attr("prescale_bits: int")
    .Attr("postscale_bits: int")
    .Input("tensors: T")
    .Output("reduced: T")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShapes)
    .Doc(R"doc(
Reduces tensors over all ranks. Several are one atomic group.
)doc");

REGISTER_OP("KerasRingBroadcast")
    .Attr("T: list(" KR_MOVABLE ") >= 1")
    .Attr("tensor_name: string")
    .Attr("root_rank: int")
    .Input("tensors: T")
    .Output("received: T")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShapes)
    .Doc(R"doc(
Gives every rank the root's tensors. Several are one atomic group.
)doc");

REGISTER_OP("KerasRingAllgather")
    .Attr("T: " KR_MOVABLE)
    .Attr("tensor_name: string")
    .Input("tensor: T")
    .Output("gathered: T")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AnyRows)
    .Doc(R"doc(
Concatenates the ranks' tensors along the first dimension, in rank order.
)doc");

REGISTER_OP("KerasRingBarrier")
    .Attr("tensor_name: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Waits until every rank has come to the barrier of this name.
)doc");

}  // namespace
}  // namespace keras_ring
