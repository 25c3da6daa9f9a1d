// SPDX-License-Identifier: Apache-2.0
// Charts as data, independent of how they are rendered.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::report {

// Points over the number of ranks, on a logarithmic axis.
struct RankPoint {
  int world_size = 1;
  double value = 0;
  std::optional<double> low;  // range over several runs
  std::optional<double> high;
  std::string label;  // text beside the point
};

struct RankChart {
  std::string title;
  std::string description;  // a description for readers who cannot see the chart
  std::string unit;         // of the value axis
  std::vector<RankPoint> points;
  std::vector<RankPoint> ideal;  // a dashed line; may be empty
  bool logarithmic = false;      // the value axis is logarithmic, too
  bool percent = false;          // values are fractions; the axis covers at least 0 to 110 %
};

struct Segment {
  std::string kind;   // a phase's key, "kept", "unaccounted", "outside": selects the color
  std::string name;   // display name
  double value = 0;   // not negative
  std::string label;  // drawn inside if it fits
};

struct Bar {
  std::string name;
  std::vector<Segment> segments;
  std::string total;  // text after the bar
  double begin = 0;   // position on the axis where it starts; may be negative
};

// Horizontal stacked bars on one linear axis that includes 0.
struct BarChart {
  std::string title;
  std::string description;
  std::string unit;
  std::vector<Bar> bars;
  double axis_factor = 1;                // axis labels are values times this
  std::optional<double> reference = {};  // a dashed line, for example at the ideal value
  // Whether each bar has only one segment, of the bar's name: no legend, no text inside.
  bool named_segments = false;
};

// Time from left to right: parts that follow each other, and below them the segments of each.
struct StripChart {
  struct Part {
    std::string name;               // drawn if it fits
    std::vector<Segment> segments;  // values are seconds
    std::string mark;               // text of a mark at its end; empty: none
  };

  std::string title;
  std::string description;
  std::string unit;  // of the axis
  std::vector<Part> parts;
  double axis_factor = 1;  // axis labels are seconds times this
};

}  // namespace ddp::report
