// Hides the fake's own synchronisation from TSAN, and tells it the order that a
// program has asked for.
#ifndef KERAS_RING_TESTING_FAKE_CUDA_HIDDEN_H_
#define KERAS_RING_TESTING_FAKE_CUDA_HIDDEN_H_

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KR_FAKE_TSAN 1
#endif
#endif

#ifdef KR_FAKE_TSAN
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
void AnnotateIgnoreSyncBegin(const char*, int);
void AnnotateIgnoreSyncEnd(const char*, int);
void __tsan_acquire(void*);  // NOLINT(bugprone-reserved-identifier)
void __tsan_release(void*);  // NOLINT(bugprone-reserved-identifier)
}
#endif

namespace keras_ring::cuda::fake {

#ifdef KR_FAKE_TSAN

class Hidden {
 public:
  Hidden() {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Hidden() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
};
// What came before a Release of an address comes before what follows its
// Acquire.
inline void Acquire(void* address) { __tsan_acquire(address); }
inline void Release(void* address) { __tsan_release(address); }

#else

class Hidden {
 public:
  Hidden() {}
};
inline void Acquire(void*) {}
inline void Release(void*) {}

#endif

}  // namespace keras_ring::cuda::fake

#endif  // KERAS_RING_TESTING_FAKE_CUDA_HIDDEN_H_
