// SmallVector: a vector whose first elements need no allocation.
#ifndef KERAS_RING_BASE_SMALL_VECTOR_H_
#define KERAS_RING_BASE_SMALL_VECTOR_H_

#include <array>
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

namespace keras_ring {

// For what there is mostly one of and sometimes many. Grows only; move-only,
// as nothing here needs to be copied. What was moved from is empty.
template <typename T, size_t kInline = 1>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using const_iterator = const T*;

  SmallVector() = default;
  SmallVector(std::initializer_list<T> values) {
    reserve(values.size());
    for (const T& value : values) push_back(value);
  }
  SmallVector(SmallVector&& other) noexcept
      : size_(std::exchange(other.size_, 0)),
        inline_(other.inline_),
        heap_(std::move(other.heap_)) {
    other.heap_.clear();
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this == &other) return *this;
    size_ = std::exchange(other.size_, 0);
    inline_ = other.inline_;
    heap_ = std::move(other.heap_);
    other.heap_.clear();
    return *this;
  }
  SmallVector(const SmallVector&) = delete;
  SmallVector& operator=(const SmallVector&) = delete;

  void reserve(size_t count) {
    if (count > kInline) heap_.reserve(count);
  }
  void push_back(const T& value) {
    if (size_ < kInline) {
      inline_[size_++] = value;
      return;
    }
    // All of them move, so that they stay side by side.
    if (size_ == kInline) heap_.assign(inline_.begin(), inline_.end());
    heap_.push_back(value);
    ++size_;
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  const T* data() const {
    return size_ > kInline ? heap_.data() : inline_.data();
  }
  T* data() { return size_ > kInline ? heap_.data() : inline_.data(); }
  const T& operator[](size_t i) const { return data()[i]; }
  T& operator[](size_t i) { return data()[i]; }
  const T& front() const { return data()[0]; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  size_t size_ = 0;
  std::array<T, kInline> inline_{};
  std::vector<T> heap_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_SMALL_VECTOR_H_
