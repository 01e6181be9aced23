// The signatures of the ops that stand for a collective in a function that XLA
// compiles. They have no kernel of their own; xla_kernels.cc lowers them.
//
// They are ops apart from those of op_defs.cc, so that these have no lowering
// and automatic clustering leaves them alone.
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/tf_adapters.h"

namespace keras_ring {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The outputs have the shapes of the inputs called `like`, except for their
// rows.
absl::Status ShapesOfLike(InferenceContext* context) {
  std::vector<ShapeHandle> shapes;
  TF_RETURN_IF_ERROR(context->input("like", &shapes));
  std::vector<int64_t> rows;
  TF_RETURN_IF_ERROR(context->GetAttr("rows", &rows));
  for (size_t i = 0; i < rows.size() && i < shapes.size(); ++i) {
    if (rows[i] < 0) continue;
    TF_RETURN_IF_ERROR(context->ReplaceDim(
        shapes[i], 0, context->MakeDim(rows[i]), &shapes[i]));
  }
  return context->set_output("results", shapes);
}

const std::string kTypes = "T: list(" + TfTypes(/*reducible=*/false) + ") >= 1";

REGISTER_OP("KerasRingXlaStart")
    .Attr(kTypes)
    .Attr("tensor_name: string")
    .Attr("process_set_id: int = 0")
    .Attr("kind: int")  // a RequestKind
    .Attr("reduce_op: int = 0")
    .Attr("root_rank: int = 0")
    .Attr("prescale_bits: int = 0")
    .Attr("postscale_bits: int = 0")
    .Attr("compression: int = 0")
    .Input("tensors: T")
    .Output("ticket: int32")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Starts an allreduce, reducescatter or broadcast of one or several tensors.
)doc");

REGISTER_OP("KerasRingXlaDone")
    .Attr(kTypes)
    .Attr("N: int >= 1")
    // The rows of the result for each of `like`; negative: as many as it has.
    .Attr("rows: list(int)")
    .Input("tickets: N * int32")
    .Input("like: T")
    .Output("results: T")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(ShapesOfLike)
    .Doc(R"doc(
Waits for what was started. `like` are the tensors that were given to the
starts, for their dtypes and shapes, and as the place of gradients.
)doc");

}  // namespace
}  // namespace keras_ring
