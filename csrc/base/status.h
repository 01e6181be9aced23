// Status and Result: how every fallible function of csrc reports failure.
//
// No exception crosses a function boundary of ours, because the callers are
// TensorFlow executors and C++ threads that cannot catch them.
#ifndef KERAS_RING_BASE_STATUS_H_
#define KERAS_RING_BASE_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace keras_ring {

// The names (and numbers) of absl::StatusCode, so that translating one into
// the other is a table and nothing else.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

const char* StatusCodeName(StatusCode code);
// Returns the code with this number, for readers of the wire. An unknown number
// gives kInternal, as it still is an error.
StatusCode StatusCodeOf(uint8_t number);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "UNAVAILABLE: rank 2 ...", or "OK".
  std::string ToString() const;

  // The same code with `context` in front: each floor adds what it knows, once.
  Status WithContext(const std::string& context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline bool operator==(const Status& a, const Status& b) {
  return a.code() == b.code() && a.message() == b.message();
}

inline Status OkStatus() { return Status(); }
Status CancelledError(std::string message);
Status InvalidArgumentError(std::string message);
Status DeadlineExceededError(std::string message);
Status ResourceExhaustedError(std::string message);
Status FailedPreconditionError(std::string message);
Status AbortedError(std::string message);
Status UnimplementedError(std::string message);
Status InternalError(std::string message);
Status UnavailableError(std::string message);
Status DataLossError(std::string message);
Status UnauthenticatedError(std::string message);

// An errno value as text, "Connection refused (111)"; thread-safe.
std::string ErrnoText(int error);

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(Status status) : status_(std::move(status)) {}
  Result(T value) : value_(std::move(value)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

[[noreturn]] void CheckFailed(const char* file, int line,
                              const char* expression);

}  // namespace keras_ring

#define KR_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::keras_ring::Status kr_status = (expr); \
    if (!kr_status.ok()) return kr_status;   \
  } while (false)

#define KR_CONCAT_INNER(a, b) a##b
#define KR_CONCAT(a, b) KR_CONCAT_INNER(a, b)
#define KR_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                             \
  if (!result.ok()) return result.status();         \
  lhs = std::move(result).value()
#define KR_ASSIGN_OR_RETURN(lhs, expr) \
  KR_ASSIGN_OR_RETURN_IMPL(KR_CONCAT(kr_result_, __LINE__), lhs, expr)

// For invariants of our own code only: what a user or a peer can cause is a
// Status.
#define KR_CHECK(condition)                                      \
  do {                                                           \
    if (!(condition))                                            \
      ::keras_ring::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// The same in debug and sanitizer builds; else nothing is evaluated.
#ifdef NDEBUG
#define KR_DCHECK(condition) \
  do {                       \
    (void)sizeof(condition); \
  } while (false)
#else
#define KR_DCHECK(condition) KR_CHECK(condition)
#endif

#endif  // KERAS_RING_BASE_STATUS_H_
