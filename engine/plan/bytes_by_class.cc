#include <algorithm>
#include <iterator>
#include <map>

#include "engine/plan/step_program.h"

namespace penstock {
namespace {

class DisjointRanges {
 public:
  // Returns how much of [begin, end) no range before covers.
  int64_t Add(int64_t begin, int64_t end) {
    int64_t fresh = end - begin, first = begin, last = end;
    auto next = end_by_begin_.upper_bound(begin);
    if (next != end_by_begin_.begin() && std::prev(next)->second >= begin) --next;
    while (next != end_by_begin_.end() && next->first <= end) {
      fresh -= std::max<int64_t>(0, std::min(end, next->second) - std::max(begin, next->first));
      first = std::min(first, next->first);
      last = std::max(last, next->second);
      next = end_by_begin_.erase(next);
    }
    end_by_begin_.emplace(first, last);
    return fresh;
  }

 private:
  std::map<int64_t, int64_t> end_by_begin_;
};

}  // namespace

std::map<BufferClass, int64_t> BytesByClass(const StepProgram& program, Arena arena) {
  std::map<BufferClass, int64_t> bytes;
  DisjointRanges counted;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.arena != arena) continue;
    bytes[buffer.buffer_class] += counted.Add(buffer.offset, buffer.offset + buffer.bytes);
  }
  return bytes;
}

}  // namespace penstock
