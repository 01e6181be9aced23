// JsonText: a text as JSON writes it.
#ifndef KERAS_RING_BASE_JSON_TEXT_H_
#define KERAS_RING_BASE_JSON_TEXT_H_

#include <string>
#include <string_view>

namespace keras_ring {

// In quotes, with what JSON does not allow inside of them escaped.
std::string JsonText(std::string_view text);

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_JSON_TEXT_H_
