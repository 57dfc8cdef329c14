#include "engine/train/save_order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <variant>

namespace penstock {

std::vector<int64_t> ChooseSaveOrder(const std::vector<std::vector<BlockId>>& blocks_of_file,
                                     std::span<const BlockId> update_order) {
  std::map<BlockId, size_t> rank;
  for (size_t i = 0; i < update_order.size(); ++i) rank.emplace(update_order[i], i);
  std::vector<size_t> due;
  for (const std::vector<BlockId>& blocks : blocks_of_file) {
    size_t first = std::numeric_limits<size_t>::max();
    for (const BlockId block : blocks) {
      const auto found = rank.find(block);
      if (found != rank.end()) first = std::min(first, found->second);
    }
    due.push_back(first);
  }
  std::vector<int64_t> order(blocks_of_file.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return due[a] < due[b]; });
  return order;
}

std::vector<BlockId> HostUpdateOrder(const StepProgram& program) {
  std::vector<BlockId> order;
  for (const Op& op : program.ops) {
    const auto* update = std::get_if<UpdateHost>(&op.body);
    if (update == nullptr || std::ranges::find(order, update->block) != order.end()) continue;
    order.push_back(update->block);
  }
  return order;
}

}  // namespace penstock
