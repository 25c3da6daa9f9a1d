// Charts as data. What they look like is the renderer's business.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::report {

// Dots over the number of ranks, which has a logarithmic axis.
struct RankPoint {
  int world_size = 1;
  double value = 0;
  std::optional<double> low;  // of several runs
  std::optional<double> high;
  std::string label;  // beside the dot
};

struct RankChart {
  std::string title;
  std::string description;  // what it shows, in words, for those who cannot see it
  std::string unit;         // of the value axis
  std::vector<RankPoint> points;
  std::vector<RankPoint> ideal;  // a dashed line; may be empty
  bool logarithmic = false;      // value axis too
  bool percent = false;          // values are fractions, the axis runs from 0 to 110 % at least
};

struct Segment {
  std::string kind;   // a phase's key, "kept", "unaccounted", "outside": chooses the color
  std::string name;   // for people
  double value = 0;   // not negative
  std::string label;  // inside, if there is room
};

struct Bar {
  std::string name;
  std::vector<Segment> segments;
  std::string total;  // behind the bar
  double begin = 0;   // where it begins on the axis; below zero by what was gained
};

// Horizontal bars of segments, on one linear axis that holds 0.
struct BarChart {
  std::string title;
  std::string description;
  std::string unit;
  std::vector<Bar> bars;
  double axis_factor = 1;           // axis labels are values times this
  std::optional<double> reference;  // a dashed line, e.g. at the ideal
};

}  // namespace ddp::report
