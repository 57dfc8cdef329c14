#include "server/worker/confinement.h"

#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {
namespace {

// Looks into or changes other processes, the kernel, or what the process sees of the system.
constexpr int kForbidden[] = {SCMP_SYS(ptrace),
                              SCMP_SYS(process_vm_readv),
                              SCMP_SYS(process_vm_writev),
                              SCMP_SYS(mount),
                              SCMP_SYS(umount2),
                              SCMP_SYS(pivot_root),
                              SCMP_SYS(chroot),
                              SCMP_SYS(setns),
                              SCMP_SYS(unshare),
                              SCMP_SYS(init_module),
                              SCMP_SYS(finit_module),
                              SCMP_SYS(delete_module),
                              SCMP_SYS(kexec_load),
                              SCMP_SYS(kexec_file_load),
                              SCMP_SYS(reboot),
                              SCMP_SYS(swapon),
                              SCMP_SYS(swapoff),
                              SCMP_SYS(acct),
                              SCMP_SYS(bpf),
                              SCMP_SYS(perf_event_open),
                              SCMP_SYS(add_key),
                              SCMP_SYS(request_key),
                              SCMP_SYS(keyctl),
                              SCMP_SYS(settimeofday),
                              SCMP_SYS(clock_settime),
                              SCMP_SYS(sethostname),
                              SCMP_SYS(setdomainname)};

absl::Status NotAllowed(const char* what, int error) {
  return Error(absl::StatusCode::kUnavailable, reason::kFeatureUnsupported,
               absl::StrCat(what, ": ", std::strerror(error)));
}

struct Release {
  void operator()(void* filter) const { seccomp_release(filter); }
};

// 0, or a negative errno.
int AddRules(scmp_filter_ctx filter) {
  for (const int call : kForbidden) {
    if (int failed = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0)) return failed;
  }
  // Makes sockets without the call that is looked at below. Whoever has it has the others too.
  if (int failed = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(io_uring_setup), 0)) {
    return failed;
  }
  // As where there is no such network: libraries go on without it. Netlink leads nowhere but to the
  // kernel, and drivers ask it.
  for (unsigned family = 0; family < AF_MAX; ++family) {
    if (family == AF_UNIX || family == AF_NETLINK) continue;
    if (int failed = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                                      SCMP_A0(SCMP_CMP_EQ, family))) {
      return failed;
    }
  }
  return 0;
}

}  // namespace

absl::Status ConfineProcess() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return NotAllowed("cannot give up gaining rights", errno);
  }
  const std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, Release> filter(
      seccomp_init(SCMP_ACT_ALLOW));
  if (filter == nullptr) return NotAllowed("cannot make a filter of system calls", ENOMEM);
  int failed = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);
  if (failed == 0) failed = AddRules(filter.get());
  if (failed == 0) failed = seccomp_load(filter.get());
  return failed == 0 ? absl::OkStatus() : NotAllowed("cannot filter system calls", -failed);
}

}  // namespace penstock::server
