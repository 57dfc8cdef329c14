// Who reads the host store while steps run, and is not through with all of it yet.
#pragma once

#include "engine/base/ids.h"

namespace penstock {

class UpdateGate {
 public:
  virtual ~UpdateGate() = default;

  // Called on a lane's thread before an op changes planes or moments of `block` in the host store.
  // Returns when the block may change; ops of other lanes go on meanwhile.
  virtual void BeforeUpdate(BlockId block) = 0;
};

}  // namespace penstock
