// In which order the files of a checkpoint are written while the next step runs: a file is due when
// the step comes to change the first of its blocks. A pure function, which the writer obeys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"
#include "engine/plan/step_program.h"

namespace penstock {

// `blocks_of_file`: the blocks of which each file holds parameters. `update_order`: blocks in the
// order in which a step changes them in the host store, each once; what is not among them stays as
// it is. Gives the indices of the files: the one whose first block changes first comes first, files
// that nothing changes come last, and of two that are due together the one with the lower index is
// first.
std::vector<int64_t> ChooseSaveOrder(const std::vector<std::vector<BlockId>>& blocks_of_file,
                                     std::span<const BlockId> update_order);

// Blocks in the order in which the program changes them in the host store, each once; of those that
// it changes on the device alone there are none.
std::vector<BlockId> HostUpdateOrder(const StepProgram& program);

}  // namespace penstock
