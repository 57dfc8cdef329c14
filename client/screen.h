// A page that is drawn over and over on a terminal, as `penstock top` does; and the keys pressed
// meanwhile. While one lives, the terminal shows its other screen, without cursor and echo;
// afterwards it is as before.
#pragma once

#include <termios.h>

#include <string>

#include "absl/time/time.h"

namespace penstock::client {

class Screen {
 public:
  // REQUIRES: standard output is a terminal.
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Replaces what is shown by these lines, cut to the terminal's size.
  void Draw(const std::string& page);

  // Waits so long for a key; 0 if none was pressed, or a signal came.
  char WaitForKey(absl::Duration limit);

 private:
  struct termios before_ {};
  bool has_keys_;  // standard input is a terminal; before_ holds how it was
};

}  // namespace penstock::client
