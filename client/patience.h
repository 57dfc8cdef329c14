// How long a client goes on trying while the daemon cannot be reached: until two minutes have
// passed in which nothing got on. The pause between two tries grows to two seconds.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace penstock::client {

class Patience {
 public:
  explicit Patience(absl::Duration limit = absl::Minutes(2)) : limit_(limit) {}

  // Something got on.
  void Renew();
  // Waits before the next try; false if it is not worth it any more.
  bool Wait();

 private:
  const absl::Duration limit_;
  absl::Time last_ = absl::Now();
  absl::Duration pause_ = absl::Milliseconds(100);
};

}  // namespace penstock::client
