#include "client/screen.h"

#include <poll.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/output.h"

namespace penstock::client {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearToLineEnd[] = "\x1b[K";
constexpr char kClearToEnd[] = "\x1b[J";

}  // namespace

Screen::Screen() : has_keys_(tcgetattr(STDIN_FILENO, &before_) == 0) {
  if (has_keys_) {
    struct termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C stays a signal
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  PrintData(kEnter);
}

Screen::~Screen() {
  PrintData(kLeave);
  if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void Screen::Draw(const std::string& page) {
  const TerminalSize size = SizeOfTerminal(STDOUT_FILENO);
  std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(page, "\n"), '\n');
  if (static_cast<int>(lines.size()) > size.rows) lines.resize(static_cast<size_t>(size.rows));
  std::string text = kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "\r\n" : "", CutToWidth(lines[i], size.columns),
                    kClearToLineEnd);
  }
  PrintData(text + kClearToEnd);
}

char Screen::WaitForKey(absl::Duration limit) {
  if (!has_keys_) {
    absl::SleepFor(limit);
    return 0;
  }
  struct pollfd input {};
  input.fd = STDIN_FILENO;
  input.events = POLLIN;
  if (poll(&input, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) <= 0) return 0;
  char key = 0;
  if (read(STDIN_FILENO, &key, 1) == 1) return key;
  has_keys_ = false;  // closed: nobody presses keys any more
  return 0;
}

}  // namespace penstock::client
