// The daemon in this process, over its unix socket, with fake workers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "server/daemon.h"
#include "tests/server/test_support.h"

namespace penstock::server {

constexpr int64_t kHostBytes = int64_t{1} << 30;

class DaemonTest : public testing::Test {
 protected:
  DaemonTest() {
    options_.state_directory = directory_.state();
    options_.host_memory_bytes = kHostBytes;
    options_.host_memory_limit_source = "test";
    options_.worker_binary = PENSTOCK_FAKE_WORKER;
    options_.stream_heartbeat = std::chrono::milliseconds(200);
    EngineHooks hooks = FakeHooks();
    options_.devices = hooks.make_devices();
    options_.profiles =
        std::make_shared<const ProfileStore>(directory_.state() + "/profiles", hooks.profiles);
    options_.planner = hooks.make_planner({}, options_.devices, options_.profiles);
    options_.inspector = hooks.make_inspector({}, options_.devices, 0);
    options_.output_checker = hooks.make_output_checker({});
  }

  void Start() {
    auto started = Daemon::Start(options_);
    ASSERT_TRUE(started.ok()) << started.status();
    daemon_ = *std::move(started);
    client_ = std::make_unique<Client>(daemon_->socket());
  }
  void Restart() {
    daemon_.reset();
    Start();
  }

  TestDirectory directory_;
  DaemonOptions options_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

}  // namespace penstock::server
