// The ops' signatures and shape functions, and nothing else.
//
// All are stateful: TensorFlow must not fold one whose input is a constant,
// merge twins, or drop one whose result is unused, because the other ranks
// wait for it. What that costs (automatic control dependencies would run them
// one after another) is taken back in keras_ring/tensorflow/ordering.py.
//
// All are marked as communication, or TensorFlow would turn kUnavailable (a
// lost peer) into kInternal.
//
// "All ranks" are those of the process set; 0 is the job.
#include <string>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/tf_adapters.h"

namespace keras_ring {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The i-th output has the shape of the i-th input.
absl::Status SameShapes(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    context->set_output(i, context->input(i));
  }
  return absl::OkStatus();
}

// The first `count` outputs have the shapes of the inputs, except for the
// number of rows.
absl::Status AnyRows(InferenceContext* context, int count) {
  for (int i = 0; i < count; ++i) {
    ShapeHandle input;
    TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(i), 1, &input));
    ShapeHandle output;
    TF_RETURN_IF_ERROR(
        context->ReplaceDim(input, 0, context->UnknownDim(), &output));
    context->set_output(i, output);
  }
  return absl::OkStatus();
}

absl::Status AllAnyRows(InferenceContext* context) {
  return AnyRows(context, context->num_outputs());
}

absl::Status AlltoallShapes(InferenceContext* context) {
  ShapeHandle splits;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 1, &splits));
  context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
  return AnyRows(context, 1);
}

const std::string kReducible = TfTypes(/*reducible=*/true);
const std::string kMovable = TfTypes(/*reducible=*/false);

REGISTER_OP("KerasRingAllreduce")
    .Attr("T: list(" + kReducible + ") >= 1")
    .Attr("tensor_name: string")
    .Attr("process_set_id: int = 0")
    .Attr("reduce_op: int")
    // The bits of a double: attributes of type float have 32 bits only.
    .Attr("prescale_bits: int")
    .Attr("postscale_bits: int")
    .Attr("compression: int = 0")  // a Compression
    // Of an elastic job; empty: the operation is of no step.
    .Attr("commit_group: string = ''")
    .Input("tensors: T")
    .Output("reduced: T")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(SameShapes)
    .Doc(R"doc(
Reduces tensors over all ranks. Several are one atomic group.
)doc");

REGISTER_OP("KerasRingReducescatter")
    .Attr("T: list(" + kReducible + ") >= 1")
    .Attr("tensor_name: string")
    .Attr("process_set_id: int = 0")
    .Attr("reduce_op: int")
    .Attr("prescale_bits: int")
    .Attr("postscale_bits: int")
    .Attr("compression: int = 0")
    .Input("tensors: T")
    .Output("scattered: T")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AllAnyRows)
    .Doc(R"doc(
Reduces tensors over all ranks and gives each rank its part of the rows. Several
are one atomic group.
)doc");

REGISTER_OP("KerasRingBroadcast")
    .Attr("T: list(" + kMovable + ") >= 1")
    .Attr("tensor_name: string")
    .Attr("process_set_id: int = 0")
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
    .Attr("T: list(" + kMovable + ") >= 1")
    .Attr("tensor_name: string")
    .Attr("process_set_id: int = 0")
    .Input("tensors: T")
    .Output("gathered: T")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AllAnyRows)
    .Doc(R"doc(
Concatenates the ranks' tensors along the first dimension, in rank order.
Several are one atomic group.
)doc");

REGISTER_OP("KerasRingAlltoall")
    .Attr("T: " + kMovable)
    .Attr("tensor_name: string")
    .Attr("process_set_id: int = 0")
    .Input("tensor: T")
    // The number of rows for each rank; empty: equal shares.
    .Input("splits: int64")
    .Output("received: T")
    .Output("received_splits: int64")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AlltoallShapes)
    .Doc(R"doc(
Gives every rank its rows of each rank's tensor, in rank order.
)doc");

REGISTER_OP("KerasRingCommit")
    .Attr("commit_group: string")
    .Output("committed: bool")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Asks whether the step counts whose operations have ended, on all ranks alike.
)doc");

REGISTER_OP("KerasRingTopology")
    .Attr("what: {'rank', 'size', 'local_rank', 'local_size', 'included'}")
    .Attr("process_set_id: int = 0")
    .Output("value: int32")
    // Not a constant: a graph may outlive the job it was made in.
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Where this process stands in its job or in a process set, when the op runs.
)doc");

REGISTER_OP("KerasRingInputWaitBegin")
    .Output("wait: int64")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(2));
      return absl::OkStatus();
    })
    .Doc(R"doc(
From here on the program waits for its input pipeline.
)doc");

REGISTER_OP("KerasRingInputWaitEnd")
    .Input("wait: int64")
    .Input("element: T")
    .Attr("T: type")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
The element is there. `wait` is of the op that has begun.
)doc");

REGISTER_OP("KerasRingBarrier")
    .Attr("tensor_name: string")
    .Attr("process_set_id: int = 0")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Waits until every rank has come to the barrier of this name.
)doc");

REGISTER_OP("KerasRingJoin")
    .Attr("tensor_name: string")
    .Attr("process_set_id: int = 0")
    .Output("last_rank: int32")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Says that this rank brings nothing more, and waits until all ranks have said so.
)doc");

}  // namespace
}  // namespace keras_ring
