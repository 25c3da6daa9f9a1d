// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/render/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ddp_runtime/report/document/format.h"
#include "ddp_runtime/report/render/axis.h"
#include "ddp_runtime/report/render/escape.h"

namespace ddp::report {
namespace {

// Estimated width of a character in the charts, on the wide side, to leave room for labels.
constexpr double kCharacter = 7.2;

double width_of(const std::string& text) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80;  // not a continuation in UTF-8
  });
  return kCharacter * static_cast<double>(characters);
}

std::string open_svg(const std::string& id, double width, double height, const std::string& title,
                     const std::string& description) {
  return fmt::format(
      "<svg role=\"img\" aria-labelledby=\"{0}-t {0}-d\" viewBox=\"0 0 {1:.0f} {2:.0f}\" "
      "style=\"max-width:{1:.0f}px\">\n<title id=\"{0}-t\">{3}</title>\n<desc "
      "id=\"{0}-d\">{4}</desc>\n",
      id, width, height, html_escape(title), html_escape(description));
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format(
      "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1,
      y1, x2, y2);
}

std::string text(double x, double y, const char* style, const std::string& words) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, x, y,
                     html_escape(words));
}

// ---- points over ranks

constexpr double kWidth = 480;
constexpr double kHeight = 300;
constexpr double kLeft = 64;
constexpr double kRight = 18;
constexpr double kTop = 34;
constexpr double kBottom = 46;
constexpr double kInset = 26;  // so that the first and the last label are not clipped

// Whether a point can be drawn: it is finite, and positive if the axis is logarithmic.
std::vector<RankPoint> drawable(const std::vector<RankPoint>& points, bool logarithmic) {
  std::vector<RankPoint> good;
  for (auto point : points) {
    const auto fits = [logarithmic](double value) {
      return std::isfinite(value) && (logarithmic ? value > 0 : value >= 0);
    };
    if (!fits(point.value) || point.world_size < 1) continue;
    if (point.low && !fits(*point.low)) point.low.reset();
    if (point.high && !fits(*point.high)) point.high.reset();
    good.push_back(std::move(point));
  }
  return good;
}

struct RankPlot {
  std::vector<RankPoint> points;
  std::vector<RankPoint> ideal;
  std::vector<double> ticks;
  std::set<int> sizes;
  double low = 0;
  double high = 1;
};

RankPlot plan(const RankChart& chart) {
  RankPlot plot;
  plot.points = drawable(chart.points, chart.logarithmic);
  plot.ideal = drawable(chart.ideal, chart.logarithmic);
  double low = std::numeric_limits<double>::infinity();
  double high = chart.percent ? 1.1 : 0;
  for (const auto* list : {&plot.points, &plot.ideal}) {
    for (const auto& point : *list) {
      plot.sizes.insert(point.world_size);
      low = std::min(low, point.low.value_or(point.value));
      high = std::max(high, point.high.value_or(point.value));
    }
  }
  if (chart.logarithmic) {
    const bool empty = plot.sizes.empty();
    plot.ticks = binary_ticks(empty ? 1 : low, empty ? 2 : high);
    plot.low = plot.ticks.front();
    plot.high = plot.ticks.back();
  } else if (chart.percent && high <= 1.2) {
    plot.ticks = {0, 0.25, 0.5, 0.75, 1};
    plot.high = std::max(high, 1.1);
  } else {
    plot.ticks = linear_ticks(high);
    plot.high = plot.ticks.back();
  }
  return plot;
}

// Ticks are round numbers: print all digits, unless there are too many.
std::string tick_text(double value) {
  constexpr std::size_t kFits = 7;  // characters left of the axis
  if (std::abs(value) >= 1e5) return compact(value);
  const std::string digits = fmt::format("{:g}", value);
  return digits.size() <= kFits ? digits : fmt::format("{:.1e}", value);
}

std::string tick_text(const RankChart& chart, double value) {
  if (chart.percent) return fmt::format("{:.0f} %", 100 * value);
  return tick_text(value);
}

std::string grid(const RankChart& chart, const RankPlot& plot, const Axis& x, const Axis& y) {
  std::string svg;
  for (const double tick : plot.ticks) {
    svg += line(kLeft, y(tick), kWidth - kRight, y(tick), tick == plot.low ? "axis" : "grid");
    svg += text(kLeft - 8, y(tick) + 4, "tick end", tick_text(chart, tick));
  }
  double previous = -kWidth;
  for (const int size : plot.sizes) {
    const double place = x(size);
    svg += line(place, kHeight - kBottom, place, kHeight - kBottom + 5, "axis");
    const std::string words = std::to_string(size);
    if (place - previous < width_of(words) + 8) continue;
    svg += text(place, kHeight - kBottom + 20, "tick middle", words);
    previous = place;
  }
  svg += text((kLeft + kWidth - kRight) / 2, kHeight - 6, "name middle", "ranks");
  return svg + text(kLeft - 8, 16, "name", chart.unit);
}

std::string polyline(const std::vector<RankPoint>& points, const Axis& x, const Axis& y,
                     const char* style) {
  if (points.size() < 2) return "";
  std::string places;
  for (const auto& point : points) {
    places += fmt::format("{}{:.1f},{:.1f}", places.empty() ? "" : " ", x(point.world_size),
                          y(point.value));
  }
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", style, places);
}

std::string whisker(const RankPoint& point, const Axis& x, const Axis& y) {
  if (!point.low || !point.high) return "";
  const double place = x(point.world_size);
  return line(place, y(*point.low), place, y(*point.high), "whisker") +
         line(place - 5, y(*point.low), place + 5, y(*point.low), "whisker") +
         line(place - 5, y(*point.high), place + 5, y(*point.high), "whisker");
}

std::string dot(const RankPoint& point, const Axis& x, const Axis& y) {
  return fmt::format(
      "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"><title>{} ranks: "
      "{}</title></circle>\n",
      x(point.world_size), y(point.value), point.world_size, html_escape(point.label));
}

// Places labels from the right, because the largest number of ranks matters most. Omits a label
// that would touch the previous one; its value is in the table.
std::string labels(const std::vector<RankPoint>& points, const Axis& x, const Axis& y) {
  std::string svg;
  double free_until = kWidth;
  for (auto point = points.rbegin(); point != points.rend(); ++point) {
    const double half = width_of(point->label) / 2;
    const double place = std::clamp(x(point->world_size), kLeft + half + 2, kWidth - half - 2);
    if (place + half > free_until) continue;
    free_until = place - half - 4;
    const double above = y(point->high.value_or(point->value)) - 11;
    const double below = y(point->low.value_or(point->value)) + 21;
    svg += text(place, above > kTop ? above : below, "label middle", point->label);
  }
  return svg;
}

// ---- bars

constexpr double kBarsWidth = 960;
constexpr double kBarHeight = 30;
constexpr double kBarStep = 44;
constexpr double kBarsTop = 8;
constexpr double kBarsBottom = 44;

double begin_of(const Bar& bar) {
  return std::isfinite(bar.begin) ? bar.begin : 0;
}

// End of the bar on the axis.
double end_of(const Bar& bar) {
  double sum = begin_of(bar);
  for (const auto& segment : bar.segments) {
    if (std::isfinite(segment.value) && segment.value > 0) sum += segment.value;
  }
  return sum;
}

struct BarPlot {
  double left = 0;
  double right = 0;
  double height = 0;
  double low = 0;  // range of the axis, in values
  double high = 1;
  std::vector<double> ticks;
};

BarPlot plan(const BarChart& chart) {
  BarPlot plot;
  double longest_name = 0;
  double longest_total = 0;
  double high = chart.reference.value_or(0);
  for (const auto& bar : chart.bars) {
    longest_name = std::max(longest_name, width_of(bar.name));
    longest_total = std::max(longest_total, width_of(bar.total));
    high = std::max(high, end_of(bar));
    plot.low = std::min(plot.low, begin_of(bar));
  }
  plot.left = std::min(longest_name, 200.0) + 16;
  plot.right = kBarsWidth - longest_total - 24;
  plot.height = kBarsTop + kBarStep * static_cast<double>(chart.bars.size()) + kBarsBottom;
  plot.high = high > 0 ? high : 1;
  plot.ticks = linear_ticks(plot.high * chart.axis_factor);
  std::erase_if(plot.ticks, [end = plot.high * chart.axis_factor * (1 + 1e-9)](double tick) {
    return tick > end;
  });
  return plot;
}

std::string segment_svg(const Segment& segment, const std::string& bar, double from, double to,
                        double top, bool with_text = true) {
  std::string svg = fmt::format(
      "<rect class=\"seg k-{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\">"
      "<title>{}, {}: {}</title></rect>\n",
      segment.kind, from, top, to - from, kBarHeight, html_escape(bar), html_escape(segment.name),
      html_escape(segment.label));
  if (with_text && to - from > width_of(segment.label) + 6) {
    svg += fmt::format("<text class=\"inside on-{} middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       segment.kind, (from + to) / 2, top + kBarHeight / 2 + 4.5,
                       html_escape(segment.label));
  }
  return svg;
}

std::string bar_svg(const Bar& bar, const BarPlot& plot, const Axis& x, double top,
                    bool with_text) {
  std::string svg = text(plot.left - 10, top + kBarHeight / 2 + 4.5, "tick end", bar.name);
  double value = begin_of(bar);
  for (const auto& segment : bar.segments) {
    if (!std::isfinite(segment.value) || segment.value <= 0) continue;
    svg += segment_svg(segment, bar.name, x(value), x(value + segment.value), top, with_text);
    value += segment.value;
  }
  return svg + text(x(value) + 8, top + kBarHeight / 2 + 4.5, "label", bar.total);
}

// ---- a strip of time

constexpr double kStripHeight = 132;
constexpr double kStripPartTop = 18;
constexpr double kStripPartHeight = 24;
constexpr double kStripTop = 46;
constexpr double kStripBase = kStripTop + kBarHeight + 8;
constexpr double kStripSide = 16;

double seconds_of(const StripChart::Part& part) {
  double sum = 0;
  for (const auto& segment : part.segments) {
    if (std::isfinite(segment.value) && segment.value > 0) sum += segment.value;
  }
  return sum;
}

std::string part_svg(const StripChart::Part& part, double begin, const Axis& x) {
  const double from = x(begin);
  const double to = x(begin + seconds_of(part));
  std::string svg = fmt::format(
      "<rect class=\"part\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
      "height=\"{:.0f}\"><title>{}</title></rect>\n",
      from, kStripPartTop, to - from, kStripPartHeight, html_escape(part.name));
  if (to - from > width_of(part.name) + 6) {
    svg +=
        text((from + to) / 2, kStripPartTop + kStripPartHeight / 2 + 4.5, "tick middle", part.name);
  }
  for (const auto& segment : part.segments) {
    if (!std::isfinite(segment.value) || segment.value <= 0) continue;
    svg += segment_svg(segment, part.name, x(begin), x(begin + segment.value), kStripTop);
    begin += segment.value;
  }
  if (part.mark.empty()) return svg;
  return svg + fmt::format(
                   "<path class=\"mark\" d=\"M{0:.1f},{1:.1f} l-5,-10 h10 z\"><title>{2}: "
                   "{3}</title></path>\n",
                   to, kStripPartTop, html_escape(part.name), html_escape(part.mark));
}

}  // namespace

std::string svg_of(const StripChart& chart, const std::string& id) {
  double total = 0;
  for (const auto& part : chart.parts) total += seconds_of(part);
  if (total <= 0) total = 1;
  const Axis x(0, total, kStripSide, kBarsWidth - kStripSide, false);
  std::string svg = open_svg(id, kBarsWidth, kStripHeight, chart.title, chart.description);
  for (const double tick : linear_ticks(total * chart.axis_factor)) {
    if (tick > total * chart.axis_factor * (1 + 1e-9)) break;
    const double place = x(tick / chart.axis_factor);
    svg += line(place, kStripBase - 4, place, kStripBase + 2, "axis");
    svg += text(place, kStripBase + 16, "tick middle", tick_text(tick));
  }
  svg += text(kBarsWidth / 2, kStripHeight - 4, "name middle", chart.unit);
  double begin = 0;
  for (const auto& part : chart.parts) {
    svg += part_svg(part, begin, x);
    begin += seconds_of(part);
  }
  return svg + "</svg>\n";
}

std::string svg_of(const RankChart& chart, const std::string& id) {
  const RankPlot plot = plan(chart);
  std::string svg = open_svg(id, kWidth, kHeight, chart.title, chart.description);
  const double first = plot.sizes.empty() ? 1 : *plot.sizes.begin();
  const double last = plot.sizes.empty() ? 1 : *plot.sizes.rbegin();
  const Axis x(first, last, kLeft + kInset, kWidth - kRight - kInset, true);
  const Axis y(plot.low, plot.high, kHeight - kBottom, kTop, chart.logarithmic);
  svg += grid(chart, plot, x, y);
  svg += polyline(plot.ideal, x, y, "ideal");
  svg += polyline(plot.points, x, y, "measured");
  for (const auto& point : plot.points) svg += whisker(point, x, y) + dot(point, x, y);
  return svg + labels(plot.points, x, y) + "</svg>\n";
}

std::string svg_of(const BarChart& chart, const std::string& id) {
  const BarPlot plot = plan(chart);
  std::string svg = open_svg(id, kBarsWidth, plot.height, chart.title, chart.description);
  const Axis x(plot.low, plot.high, plot.left, plot.right, false);
  const double base = plot.height - kBarsBottom;
  for (const double tick : plot.ticks) {
    const double place = x(tick / chart.axis_factor);
    svg += line(place, kBarsTop, place, base, tick == 0 ? "axis" : "grid");
    svg += text(place, base + 18, "tick middle", tick_text(tick));
  }
  svg += text((plot.left + plot.right) / 2, plot.height - 6, "name middle", chart.unit);
  double top = kBarsTop + (kBarStep - kBarHeight) / 2;
  for (const auto& bar : chart.bars) {
    svg += bar_svg(bar, plot, x, top, !chart.named_segments);
    top += kBarStep;
  }
  if (chart.reference) {
    svg += line(x(*chart.reference), kBarsTop, x(*chart.reference), base, "ideal");
  }
  return svg + "</svg>\n";
}

}  // namespace ddp::report
