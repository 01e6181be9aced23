#include "csrc/base/sha256.h"

#include <string.h>  // explicit_bzero

#include <algorithm>
#include <cstring>

namespace keras_ring {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64
// primes (FIPS 180-4, 4.2.2).
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t RotateRight(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

uint32_t LoadBigEndian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 |
         static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

Sha256::~Sha256() {
  explicit_bzero(state_.data(), sizeof(state_));
  explicit_bzero(pending_.data(), sizeof(pending_));
}

void Sha256::Block(const uint8_t* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = LoadBigEndian(block + 4 * i);
  for (int i = 16; i < 64; ++i) {
    uint32_t s0 = RotateRight(w[i - 15], 7) ^ RotateRight(w[i - 15], 18) ^
                  (w[i - 15] >> 3);
    uint32_t s1 = RotateRight(w[i - 2], 17) ^ RotateRight(w[i - 2], 19) ^
                  (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    uint32_t sum1 = RotateRight(e, 6) ^ RotateRight(e, 11) ^ RotateRight(e, 25);
    uint32_t choice = (e & f) ^ (~e & g);
    uint32_t t1 = h + sum1 + choice + kRound[i] + w[i];
    uint32_t sum0 = RotateRight(a, 2) ^ RotateRight(a, 13) ^ RotateRight(a, 22);
    uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    uint32_t t2 = sum0 + majority;
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state_[i] += sums[i];
  explicit_bzero(w, sizeof(w));
}

void Sha256::Update(std::string_view bytes) {
  while (!bytes.empty()) {
    size_t filled = size_ % pending_.size();
    size_t taken = std::min(bytes.size(), pending_.size() - filled);
    std::memcpy(pending_.data() + filled, bytes.data(), taken);
    size_ += taken;
    bytes.remove_prefix(taken);
    if (size_ % pending_.size() == 0) Block(pending_.data());
  }
}

Sha256Digest Sha256::Finish() {
  const uint64_t bits = size_ * 8;
  Update(std::string_view("\x80", 1));
  const std::string_view zero("\0", 1);
  while (size_ % pending_.size() != 56) Update(zero);
  char length[8];
  for (int i = 0; i < 8; ++i) {
    length[i] = static_cast<char>(bits >> (56 - 8 * i));
  }
  Update(std::string_view(length, sizeof(length)));
  Sha256Digest digest;
  for (int i = 0; i < 32; ++i) {
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

Sha256Digest Sha256Of(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

Sha256Digest HmacSha256(std::string_view key, std::string_view message) {
  char block[64] = {};
  Sha256Digest hashed_key;
  if (key.size() > sizeof(block)) {
    hashed_key = Sha256Of(key);
    key = AsBytes(hashed_key);
  }
  if (!key.empty()) std::memcpy(block, key.data(), key.size());

  for (char& byte : block) byte ^= 0x36;
  Sha256 inner;
  inner.Update(std::string_view(block, sizeof(block)));
  inner.Update(message);
  Sha256Digest inner_digest = inner.Finish();

  for (char& byte : block) byte ^= 0x36 ^ 0x5c;
  Sha256 outer;
  outer.Update(std::string_view(block, sizeof(block)));
  outer.Update(AsBytes(inner_digest));
  explicit_bzero(block, sizeof(block));
  return outer.Finish();
}

bool ConstantTimeEqual(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<uint8_t>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace keras_ring
