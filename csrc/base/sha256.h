// SHA-256 and HMAC-SHA256, for the handshake of comm.
//
// Our own, because csrc links with pthread only. A handshake hashes a few
// hundred bytes, so clarity comes before speed.
#ifndef KERAS_RING_BASE_SHA256_H_
#define KERAS_RING_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace keras_ring {

using Sha256Digest = std::array<uint8_t, 32>;

// FIPS 180-4. Wiped on destruction: it may have hashed a key.
class Sha256 {
 public:
  Sha256();
  ~Sha256();

  void Update(std::string_view bytes);
  // Ends the hash; the object is not used afterwards.
  Sha256Digest Finish();

 private:
  void Block(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_;
  uint64_t size_ = 0;
};

Sha256Digest Sha256Of(std::string_view bytes);

// RFC 2104 over SHA-256.
Sha256Digest HmacSha256(std::string_view key, std::string_view message);

// Takes the same time whichever bytes differ, so that an attacker cannot find a
// proof byte by byte.
bool ConstantTimeEqual(std::string_view a, std::string_view b);

inline std::string_view AsBytes(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_SHA256_H_
