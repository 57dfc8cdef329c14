// The losses of a job as a picture in a terminal.
#pragma once

#include <cstdint>
#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "penstock/v1/job.pb.h"

namespace penstock::client {

struct PlotStyle {
  int width = 80;  // columns of the whole picture
  int height = 16;
  // Braille has eight dots a character and needs UTF-8.
  enum class Dots : uint8_t { kBraille, kAscii } dots = Dots::kAscii;
  bool color = false;  // evaluations are green; else they are told by their mark alone
};

// kBraille if the locale of this process has UTF-8.
PlotStyle::Dots DotsForLocale();

// Training losses as a line and evaluations as marks ('o'), over steps; losses that are not finite,
// or above 1e100, are left out. One line saying so if there is nothing to plot.
std::string LossPlot(const google::protobuf::RepeatedPtrField<v1::StepMetrics>& points,
                     const PlotStyle& style);

}  // namespace penstock::client
