// A daemon in this process with fake workers and the real checks of specs, and what it must still
// be after any number of hostile calls.
//
// What it answers depends on the calls before: a finding is run again with those, by
// --first-case=N-500 --cases=501, if it does not show alone.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/daemon.h"
#include "tests/server/raw_call.h"
#include "tests/server/test_support.h"

namespace penstock::fuzz {

class DaemonUnderFire {
 public:
  // Aborts if no daemon starts.
  explicit DaemonUnderFire(const std::string& testdata);

  const std::shared_ptr<grpc::Channel>& socket() const { return client_->channel; }
  const std::shared_ptr<grpc::Channel>& tcp() const { return tcp_; }
  std::string http_address() const { return daemon_->http_address(); }
  // That open the door as viewer, user and admin, and one that has expired.
  const std::vector<std::string>& tokens() const { return tokens_; }
  // What text in requests is made of: names of what there is, and of what must not be reached.
  const std::vector<std::string>& words() const { return words_; }
  // The one allowed root.
  const std::string& root() const { return root_; }
  // A job that would be taken.
  const v1::JobSpec& spec() const { return spec_; }

  // To be called after every case; every now and then it looks whether the daemon answers, whether
  // a file was made outside the state directory, and deletes what has come together.
  absl::Status AfterCase();

 private:
  void MakeThings();
  absl::Status Tidy();

  const server::TestDirectory directory_;  // beside the state directory nothing may appear
  std::string root_;
  v1::JobSpec spec_;
  std::unique_ptr<server::Daemon> daemon_;
  std::unique_ptr<server::Client> client_;
  std::shared_ptr<grpc::Channel> tcp_;
  std::vector<std::string> tokens_, words_;
  std::set<std::string> beside_;
  int64_t cases_ = 0;
};

}  // namespace penstock::fuzz
