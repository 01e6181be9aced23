// The lowering of the ops of xla_op_defs.cc to calls in XLA's program.
//
// XLA runs calls with side effects in an order of its own, unless a data
// dependency fixes it, and often one after another. So a call that waits must
// come after everything that another rank may need before it gets there;
// StartsAndWaits in keras_ring/tensorflow/ordering.py says what that is, and
// has it lowered first. XLA does not know TensorFlow's control edges: an op
// that waits takes the tickets of everything lowered before it.
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "csrc/capi/keras_ring.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/tf_adapters.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"
#include "xla_ops/calls.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::XlaOpKernel;
using ::tensorflow::XlaOpKernelContext;

// The collectives started so far in the computation being built. It lives as
// long as the lowering of that computation.
class Started : public tensorflow::ResourceBase {
 public:
  static absl::Status Of(XlaOpKernelContext* context,
                         tensorflow::core::RefCountPtr<Started>* started) {
    tensorflow::OpKernelContext* op_context = context->op_kernel_context();
    Started* found;
    TF_RETURN_IF_ERROR(op_context->step_container()->LookupOrCreate<Started>(
        op_context->resource_manager(), "keras_ring_started", &found,
        [](Started** created) {
          *created = new Started;
          return absl::OkStatus();
        }));
    started->reset(found);
    return absl::OkStatus();
  }

  std::string DebugString() const override { return "keras_ring's tickets"; }

  std::vector<xla::XlaOp> tickets;
};

absl::Status CheckCompiler(XlaOpKernelContext* context) {
  const std::string& device =
      context->compiler()->options().device_type.type_string();
  if (device == tensorflow::DEVICE_CPU_XLA_JIT) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "keras_ring's collectives can be compiled for the CPU, not for ", device,
      "; compile the model or the function with jit_compile=False"));
}

// In row-major order, the same for every rank and for both calls.
absl::StatusOr<xla::Shape> FixedShape(XlaOpKernelContext* context, int input) {
  TF_ASSIGN_OR_RETURN(xla::Shape shape, context->InputXlaShape(input));
  if (shape.is_dynamic()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a collective in a function with jit_compile=True needs tensors of "
        "fixed shapes; received ",
        shape.ToString()));
  }
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(shape.element_type(),
                                                       shape.dimensions());
}

// In the form in which XLA reads a string from a call's attributes.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (unsigned char c : text) {
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      quoted += static_cast<char>(c);
    } else {
      absl::StrAppend(&quoted, "\\", absl::Hex(c, absl::kZeroPad2));
    }
  }
  return quoted + "\"";
}

xla::XlaOp Call(XlaOpKernelContext* context, const char* target,
                const std::vector<xla::XlaOp>& operands,
                const std::vector<xla::Shape>& shapes, const xla::Shape& result,
                const std::string& attributes) {
  return xla::CustomCallWithLayout(
      context->builder(), target, operands, result, shapes, attributes,
      /*has_side_effect=*/true, /*output_operand_aliasing=*/{},
      /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
      xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

class StartKernel final : public XlaOpKernel {
 public:
  explicit StartKernel(OpKernelConstruction* context) : XlaOpKernel(context) {
    std::string name;
    OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &name));
    OP_REQUIRES_OK(context, TakeStatus(KrCheckName(name.data(), name.size())));
    int32_t kind, reduce_op, compression;
    OP_REQUIRES_OK(context, context->GetAttr("kind", &kind));
    OP_REQUIRES_OK(context, context->GetAttr("reduce_op", &reduce_op));
    OP_REQUIRES_OK(context, context->GetAttr("compression", &compression));
    OP_REQUIRES_OK(context,
                   TakeStatus(KrCheckReduction(kind, reduce_op, compression)));
    attributes_ = absl::StrCat("{", kNameAttr, " = ", Quoted(name));
    AddNumber(context, "process_set_id", kSetAttr, "i64");
    AddNumber(context, "kind", kKindAttr, "i32");
    AddNumber(context, "reduce_op", kReduceOpAttr, "i32");
    AddNumber(context, "root_rank", kRootAttr, "i32");
    AddNumber(context, "prescale_bits", kPrescaleAttr, "i64");
    AddNumber(context, "postscale_bits", kPostscaleAttr, "i64");
    AddNumber(context, "compression", kCompressionAttr, "i32");
    absl::StrAppend(&attributes_, "}");
  }

  void Compile(XlaOpKernelContext* context) override {
    OP_REQUIRES_OK(context, CheckCompiler(context));
    std::vector<xla::XlaOp> tensors;
    std::vector<xla::Shape> shapes;
    for (int i = 0; i < context->num_inputs(); ++i) {
      absl::StatusOr<xla::Shape> shape = FixedShape(context, i);
      OP_REQUIRES_OK(context, shape.status());
      shapes.push_back(*shape);
      tensors.push_back(context->Input(i));
    }
    tensorflow::core::RefCountPtr<Started> started;
    OP_REQUIRES_OK(context, Started::Of(context, &started));
    xla::XlaOp ticket =
        Call(context, kXlaStart, tensors, shapes,
             xla::ShapeUtil::MakeShape(xla::S32, {}), attributes_);
    started->tickets.push_back(ticket);
    context->SetOutput(0, ticket);
  }

 private:
  void AddNumber(OpKernelConstruction* context, const char* op_attribute,
                 const char* attribute, const char* type) {
    int64_t value;
    OP_REQUIRES_OK(context, context->GetAttr(op_attribute, &value));
    absl::StrAppend(&attributes_, ", ", attribute, " = ", value, " : ", type);
  }

  std::string attributes_;
};

class DoneKernel final : public XlaOpKernel {
 public:
  explicit DoneKernel(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("N", &own_));
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows_));
  }

  void Compile(XlaOpKernelContext* context) override {
    std::vector<xla::XlaOp> tickets;
    for (int i = 0; i < own_; ++i) tickets.push_back(context->Input(i));
    tensorflow::core::RefCountPtr<Started> started;
    OP_REQUIRES_OK(context, Started::Of(context, &started));
    for (const xla::XlaOp& ticket : started->tickets) {
      const bool is_own = absl::c_any_of(tickets, [&](const xla::XlaOp& each) {
        return ticket.IsIdenticalTo(each);
      });
      if (!is_own) tickets.push_back(ticket);
    }
    std::vector<xla::Shape> results;
    for (int i = own_; i < context->num_inputs(); ++i) {
      absl::StatusOr<xla::Shape> shape = FixedShape(context, i);
      OP_REQUIRES_OK(context, shape.status());
      const int64_t rows = rows_[i - own_];
      if (rows >= 0) shape->set_dimensions(0, rows);
      results.push_back(*shape);
    }
    xla::XlaOp done =
        Call(context, kXlaDone, tickets,
             std::vector<xla::Shape>(tickets.size(),
                                     xla::ShapeUtil::MakeShape(xla::S32, {})),
             xla::ShapeUtil::MakeTupleShape(results),
             absl::StrCat("{", kOwnAttr, " = ", own_, " : i64}"));
    for (size_t i = 0; i < results.size(); ++i) {
      context->SetOutput(i, xla::GetTupleElement(done, i));
    }
  }

 private:
  int own_ = 0;
  std::vector<int64_t> rows_;
};

// Does the same as REGISTER_XLA_OP, but at once: that macro only records ops,
// which become kernels when TensorFlow's context is made, and this library is
// loaded when the first function that needs it is traced.
#define KR_REGISTER(op, kernel)                                            \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU_XLA_JIT), \
                          kernel);                                         \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_GPU_XLA_JIT), \
                          kernel)
KR_REGISTER("KerasRingXlaStart", StartKernel);
KR_REGISTER("KerasRingXlaDone", DoneKernel);

}  // namespace
}  // namespace keras_ring
