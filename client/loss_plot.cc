// A canvas of dots, several to a character in braille, on which values are connected by lines. The
// axes show the lowest and highest loss and the first and last step.
#include "client/loss_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace penstock::client {
namespace {

constexpr int kLabelWidth = 10;  // of a loss, left of the axis
constexpr int kSmallestWidth = 30, kSmallestHeight = 4;
// Far from where a difference of two overflows.
constexpr double kLargestLoss = 1e100;
constexpr char kGreen[] = "\x1b[32m", kPlain[] = "\x1b[0m";

struct Point {
  double step, loss;
};

// What of the plane is shown.
struct Window {
  double first_step, last_step, lowest, highest;
};

class Canvas {
 public:
  Canvas(int columns, int rows, PlotStyle::Dots dots)
      : columns_(columns),
        rows_(rows),
        across_(dots == PlotStyle::Dots::kBraille ? 2 : 1),
        down_(dots == PlotStyle::Dots::kBraille ? 4 : 1),
        cells_(static_cast<size_t>(columns * rows), 0) {}

  void Line(const Window& window, const Point& from, const Point& to) {
    const double x0 = X(window, from), y0 = Y(window, from);
    const double x1 = X(window, to), y1 = Y(window, to);
    const int steps = static_cast<int>(std::max(std::abs(x1 - x0), std::abs(y1 - y0))) + 1;
    for (int i = 0; i <= steps; ++i) {
      const double share = static_cast<double>(i) / steps;
      Set(static_cast<int>(std::lround(x0 + share * (x1 - x0))),
          static_cast<int>(std::lround(y0 + share * (y1 - y0))));
    }
  }

  // The cell's character is 'o', whatever else is in it.
  void Mark(const Window& window, const Point& point) {
    const int x = static_cast<int>(std::lround(X(window, point))) / across_;
    const int y = static_cast<int>(std::lround(Y(window, point))) / down_;
    cells_[Cell(x, y)] = kMark;
  }

  std::string Row(int row, bool color) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const int dots = cells_[Cell(column, row)];
      if (dots == kMark) {
        absl::StrAppend(&text, color ? kGreen : "", "o", color ? kPlain : "");
      } else if (dots == 0) {
        text += ' ';
      } else if (down_ == 1) {
        text += '*';
      } else {  // U+2800 and the dots, as UTF-8
        text += '\xE2';
        text += static_cast<char>(0xA0 | (dots >> 6));
        text += static_cast<char>(0x80 | (dots & 0x3F));
      }
    }
    absl::StripTrailingAsciiWhitespace(&text);
    return text;
  }

 private:
  static constexpr int kMark = -1;

  size_t Cell(int column, int row) const { return static_cast<size_t>(row * columns_ + column); }

  double X(const Window& window, const Point& point) const {
    return (point.step - window.first_step) / (window.last_step - window.first_step) *
           (columns_ * across_ - 1);
  }
  double Y(const Window& window, const Point& point) const {
    return (window.highest - point.loss) / (window.highest - window.lowest) * (rows_ * down_ - 1);
  }

  void Set(int x, int y) {
    // Bits of the dots of a braille character, by column and row.
    static constexpr int kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    cells_[Cell(x / across_, y / down_)] |= kBits[x % across_][y % down_];
  }

  const int columns_, rows_;
  const int across_, down_;  // dots of a character
  std::vector<int> cells_;
};

Window WindowOf(const std::vector<Point>& line, const std::vector<Point>& marks) {
  Window window{
      .first_step = HUGE_VAL, .last_step = -HUGE_VAL, .lowest = HUGE_VAL, .highest = -HUGE_VAL};
  for (const std::vector<Point>* points : {&line, &marks}) {
    for (const Point& point : *points) {
      window.first_step = std::min(window.first_step, point.step);
      window.last_step = std::max(window.last_step, point.step);
      window.lowest = std::min(window.lowest, point.loss);
      window.highest = std::max(window.highest, point.loss);
    }
  }
  // One point, or a flat line, stands in the middle of something.
  if (window.first_step == window.last_step) window.last_step = window.first_step + 1;
  if (window.highest - window.lowest <= std::abs(window.highest) * 1e-9) {
    const double room = std::max(std::abs(window.highest) * 0.1, 1e-6);
    window.lowest -= room;
    window.highest += room;
  }
  return window;
}

// The loss at the middle of a row of characters.
double LossAt(const Window& window, int row, int rows) {
  return window.highest - (window.highest - window.lowest) * row / (rows - 1);
}

}  // namespace

PlotStyle::Dots DotsForLocale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = absl::AsciiStrToLower(value);
    return absl::StrContains(locale, "utf-8") || absl::StrContains(locale, "utf8")
               ? PlotStyle::Dots::kBraille
               : PlotStyle::Dots::kAscii;
  }
  return PlotStyle::Dots::kAscii;
}

std::string LossPlot(const google::protobuf::RepeatedPtrField<v1::StepMetrics>& points,
                     const PlotStyle& style) {
  std::vector<Point> line, marks;
  for (const v1::StepMetrics& point : points) {
    const bool is_evaluation = point.has_evaluation();
    const double loss = is_evaluation ? point.evaluation().loss() : point.loss();
    if (!(std::abs(loss) < kLargestLoss) || point.outcome() == v1::STEP_OUTCOME_SKIPPED_NO_LABELS)
      continue;
    (is_evaluation ? marks : line).push_back({static_cast<double>(point.step()), loss});
  }
  if (line.empty() && marks.empty()) return "no losses to plot yet\n";
  const int columns = std::max(style.width, kSmallestWidth) - kLabelWidth - 2;
  const int rows = std::max(style.height, kSmallestHeight);
  const Window window = WindowOf(line, marks);
  Canvas canvas(columns, rows, style.dots);
  for (size_t i = 0; i < line.size(); ++i) canvas.Line(window, line[i > 0 ? i - 1 : 0], line[i]);
  for (const Point& mark : marks) canvas.Mark(window, mark);
  const char* axis = style.dots == PlotStyle::Dots::kBraille ? "\u2502" : "|";
  std::string text;
  for (int row = 0; row < rows; ++row) {
    const bool labelled = row == 0 || row == rows - 1 || row == rows / 2;
    absl::StrAppend(&text,
                    labelled ? absl::StrFormat("%*.4f", kLabelWidth, LossAt(window, row, rows))
                             : std::string(kLabelWidth, ' '),
                    " ", axis, canvas.Row(row, style.color), "\n");
  }
  const std::string first = absl::StrCat("step ", static_cast<int64_t>(window.first_step));
  const std::string last = absl::StrCat(static_cast<int64_t>(window.last_step));
  const int gap = std::max(columns - static_cast<int>(first.size() + last.size()), 1);
  absl::StrAppend(&text, std::string(kLabelWidth + 2, ' '), first,
                  std::string(static_cast<size_t>(gap), ' '), last, "\n");
  if (!marks.empty()) {
    absl::StrAppend(&text, std::string(kLabelWidth + 2, ' '), style.color ? kGreen : "", "o",
                    style.color ? kPlain : "", " evaluation\n");
  }
  return text;
}

}  // namespace penstock::client
