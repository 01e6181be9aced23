// NameTable: values by tensor name, or by another key, that are added and
// erased in every step.
#ifndef KERAS_RING_CONTROL_NAME_TABLE_H_
#define KERAS_RING_CONTROL_NAME_TABLE_H_

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace keras_ring {

// An unordered_map that keeps the memory of erased values for the next ones: a
// training step erases and inserts the same names over and over. `Value` has
// Clear(), which resets it but may keep its memory, too.
template <typename Value, typename Key = std::string>
class NameTable {
  using Map = std::unordered_map<Key, Value>;

 public:
  // An element keeps its address until it is erased.
  using value_type = typename Map::value_type;
  using iterator = typename Map::iterator;
  using const_iterator = typename Map::const_iterator;

  bool empty() const { return map_.empty(); }
  size_t size() const { return map_.size(); }
  iterator begin() { return map_.begin(); }
  iterator end() { return map_.end(); }
  const_iterator begin() const { return map_.begin(); }
  const_iterator end() const { return map_.end(); }
  iterator find(const Key& name) { return map_.find(name); }
  bool Contains(const Key& name) const { return map_.count(name) > 0; }

  // Returns the value of `name`, and whether it is new.
  std::pair<iterator, bool> TryEmplace(const Key& name) {
    iterator it = map_.find(name);
    if (it != map_.end()) return {it, false};
    if (spare_.empty()) return map_.try_emplace(name);
    typename Map::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = name;
    return {map_.insert(std::move(node)).position, true};
  }

  void Erase(iterator it) {
    it->second.Clear();
    typename Map::node_type node = map_.extract(it);
    if (spare_.size() < kMaxSpare) spare_.push_back(std::move(node));
  }
  void Erase(const Key& name) {
    iterator it = map_.find(name);
    if (it != map_.end()) Erase(it);
  }
  void Clear() {
    while (!map_.empty()) Erase(map_.begin());
  }

 private:
  // A large model has some thousand variables.
  static constexpr size_t kMaxSpare = 1 << 14;

  Map map_;
  std::vector<typename Map::node_type> spare_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_NAME_TABLE_H_
