// SPDX-License-Identifier: Apache-2.0
// The picture of a sweep: two panels over the number of devices, both with a logarithmic x axis.
// Left the throughput, logarithmic too, so that perfect scaling is a straight line of the same
// slope for all; right the scaling efficiency. A line joins the points of one cluster, batch,
// memory and network. Clusters differ by colour; with one cluster the others do. Marks and dashes
// tell the rest apart in print. A point where nothing fits is a cross at the foot of the panel.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "apps/whatif_report.h"
#include "lib/text.h"
#include "plan/readable.h"

namespace meshplan {
namespace {

// Okabe and Ito's colours, which people with colour blindness can tell apart, without yellow
constexpr std::array<const char*, 7> kColours = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
constexpr std::array<const char*, 4> kDashes = {"", "7 3", "2 3", "8 3 2 3"};
constexpr int kMarks = 4;

constexpr double kPanelWidth = 420;
constexpr double kPanelHeight = 320;
constexpr double kLeft = 76;
constexpr double kTop = 56;
constexpr double kBetween = 84;
constexpr double kRight = 24;
constexpr double kBelowPanel = 58;
constexpr double kLegendRow = 20;
constexpr double kLetter = 6.6;  // about the width of one at 12 px

std::string px(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f", value);
  return buffer.data();
}

std::string label(
    double x, double y, const std::string& text, const char* anchor, const std::string& more = "") {
  return "<text x=\"" + px(x) + "\" y=\"" + px(y) + "\" text-anchor=\"" + anchor + "\"" + more +
         ">" + xml_text(text) + "</text>\n";
}

std::string segment(double x1, double y1, double x2, double y2, const char* style) {
  return "<line x1=\"" + px(x1) + "\" y1=\"" + px(y1) + "\" x2=\"" + px(x2) + "\" y2=\"" + px(y2) +
         "\" " + style + "/>\n";
}

/// A straight map from numbers to pixels, over logarithms if asked.
struct Scale {
  double least = 0;
  double most = 1;
  double begin = 0;
  double end = 1;
  bool logarithmic = false;

  double operator()(double value) const {
    const auto place = [&](double v) { return logarithmic ? std::log2(v) : v; };
    return begin + (place(value) - place(least)) / (place(most) - place(least)) * (end - begin);
  }
};

/// "1", "250", "20k", "1.5M".
std::string short_number(double value) {
  static const std::array<const char*, 6> kUnits = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 48> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.3g", value);
  return std::string(buffer.data()) + kUnits[unit];
}

/// 1, 2 and 5 times powers of ten within the bounds; of each decade only the first where there are
/// many.
std::vector<double> logarithmic_ticks(double least, double most) {
  const int first = static_cast<int>(std::floor(std::log10(least)));
  const int last = static_cast<int>(std::ceil(std::log10(most)));
  std::vector<double> ticks;
  for (int decade = first; decade <= last; ++decade) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (last - first > 4 && step > 1) continue;
      const double tick = step * std::pow(10.0, decade);
      if (tick >= least * (1 - 1e-9) && tick <= most * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

struct SeriesPoint {
  double devices = 0;
  double throughput = 0;
  double efficiency = 0;
};

struct Series {
  std::string name;
  std::size_t colour = 0;
  std::size_t variant = 0;  ///< of its cluster
  std::vector<SeriesPoint> points;
  std::vector<double> without_plan;  ///< devices
};

std::string series_name(const WhatIfReport& report, const WhatIfPoint& point) {
  std::string name = report.clusters[point.place.cluster].name;
  if (report.batch.size() > 1 && point.batch) name += ", batch " + readable_count(*point.batch);
  if (report.memory.size() > 1) name += ", " + readable_bytes(point.memory);
  if (report.network.size() > 1)
    name += ", network " + network_text(report.network[point.place.network]);
  return name;
}

std::vector<Series> series_of(const WhatIfReport& report, bool tokens) {
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
  const auto efficiency = scaling_efficiency(report.points);
  std::map<Key, Series> found;
  for (std::size_t i = 0; i < report.points.size(); ++i) {
    const WhatIfPoint& point = report.points[i];
    const WhatIfPlace& place = point.place;
    Series& series = found[{place.cluster, place.batch, place.memory, place.network}];
    series.name = series_name(report, point);
    series.variant =
        (place.batch * report.memory.size() + place.memory) * report.network.size() + place.network;
    series.colour = report.clusters.size() > 1 ? place.cluster : series.variant;
    const auto devices = static_cast<double>(point.devices);
    if (point.status == WhatIfStatus::kInfeasible) series.without_plan.push_back(devices);
    if (!point.plan || !efficiency[i]) continue;
    const PlanCost& cost = point.plan->cost;
    const double throughput = tokens ? cost.tokens_per_second : 1 / cost.step_time.value;
    if (throughput > 0) series.points.push_back({devices, throughput, *efficiency[i]});
  }
  std::vector<Series> list;
  for (auto& [key, series] : found) {
    std::sort(series.points.begin(),
              series.points.end(),
              [](const SeriesPoint& a, const SeriesPoint& b) { return a.devices < b.devices; });
    if (!series.points.empty() || !series.without_plan.empty()) list.push_back(std::move(series));
  }
  return list;
}

const char* colour_of(const Series& series) { return kColours[series.colour % kColours.size()]; }

std::string mark(const Series& series, double x, double y) {
  const std::string fill = std::string(" fill=\"") + colour_of(series) + "\"/>\n";
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string points;
    for (const auto& [dx, dy] : corners)
      points += (points.empty() ? "" : " ") + px(x + dx) + "," + px(y + dy);
    return "<polygon points=\"" + points + "\"" + fill;
  };
  switch (static_cast<int>(series.variant % kMarks)) {
    case 0:
      return "<circle cx=\"" + px(x) + "\" cy=\"" + px(y) + "\" r=\"3.5\"" + fill;
    case 1:
      return polygon({{-3.2, -3.2}, {3.2, -3.2}, {3.2, 3.2}, {-3.2, 3.2}});
    case 2:
      return polygon({{0, -4.5}, {4.2, 3}, {-4.2, 3}});
    default:
      return polygon({{0, -4.6}, {4.6, 0}, {0, 4.6}, {-4.6, 0}});
  }
}

std::string cross(const Series& series, double x, double y) {
  const std::string style =
      std::string("stroke=\"") + colour_of(series) + "\" stroke-width=\"1.6\"";
  return segment(x - 3, y - 3, x + 3, y + 3, style.c_str()) +
         segment(x - 3, y + 3, x + 3, y - 3, style.c_str());
}

std::string stroke(const Series& series) {
  const std::string dash = kDashes[series.variant / kMarks % kDashes.size()];
  return std::string("fill=\"none\" stroke=\"") + colour_of(series) + "\" stroke-width=\"1.8\"" +
         (dash.empty() ? "" : " stroke-dasharray=\"" + dash + "\"");
}

constexpr const char* kGrid = "stroke=\"#e2e2e2\" stroke-width=\"1\"";
constexpr const char* kAxis = "stroke=\"#444444\" stroke-width=\"1\"";

/// The frame of a panel, its x axis and its title.
std::string frame(const Scale& x,
                  double top,
                  const std::string& title,
                  const std::set<double>& at) {
  const double bottom = top + kPanelHeight;
  std::string svg = label(x.begin, top - 12, title, "start", " font-weight=\"bold\"");
  double last = -1e9;
  for (const double devices : at) {
    const double here = x(devices);
    svg += segment(here, top, here, bottom, kGrid);
    const std::string text = readable_count(static_cast<std::int64_t>(devices));
    const double width = kLetter * static_cast<double>(text.size()) + 10;
    if (here - last < width) continue;
    svg += label(here, bottom + 17, text, "middle");
    last = here;
  }
  svg += label((x.begin + x.end) / 2, bottom + 38, "devices", "middle");
  return svg;
}

std::string tick_line(const Scale& x, const Scale& y, double value, const std::string& text) {
  return segment(x.begin, y(value), x.end, y(value), kGrid) +
         label(x.begin - 7, y(value) + 4, text, "end");
}

template <class Height>
std::string lines(const std::vector<Series>& all, const Scale& x, const Scale& y, Height height) {
  std::string svg = segment(x.begin, y.begin, x.end, y.begin, kAxis) +
                    segment(x.begin, y.begin, x.begin, y.end, kAxis);
  std::map<double, int> crosses;
  for (const Series& series : all) {
    std::string points;
    for (const SeriesPoint& point : series.points)
      points += (points.empty() ? "" : " ") + px(x(point.devices)) + "," + px(y(height(point)));
    if (series.points.size() > 1)
      svg += "<polyline points=\"" + points + "\" " + stroke(series) + "/>\n";
    for (const SeriesPoint& point : series.points)
      svg += mark(series, x(point.devices), y(height(point)));
    // those of several lines stand beside each other
    for (const double devices : series.without_plan)
      svg += cross(series, x(devices), y.begin - 8 - 9 * (crosses[devices]++ % 12));
  }
  return svg;
}

}  // namespace

std::string what_if_plot(const WhatIfReport& report) {
  const bool tokens =
      std::any_of(report.points.begin(), report.points.end(), [](const WhatIfPoint& point) {
        return point.plan && point.plan->cost.tokens_per_second > 0;
      });
  const std::vector<Series> all = series_of(report, tokens);
  std::set<double> devices;
  double slowest = 1;
  double fastest = 1;
  double best = 1;
  bool first = true;
  bool crosses = false;
  for (const Series& series : all) {
    devices.insert(series.without_plan.begin(), series.without_plan.end());
    crosses = crosses || !series.without_plan.empty();
    for (const SeriesPoint& point : series.points) {
      devices.insert(point.devices);
      slowest = first ? point.throughput : std::min(slowest, point.throughput);
      fastest = first ? point.throughput : std::max(fastest, point.throughput);
      best = std::max(best, point.efficiency);
      first = false;
    }
  }
  const double fewest = devices.empty() ? 1 : *devices.begin();
  const double most = devices.empty() ? 1 : *devices.rbegin();
  const double bottom = kTop + kPanelHeight;
  const double second = kLeft + kPanelWidth + kBetween;
  const double width = second + kPanelWidth + kRight;
  constexpr double kInside = 1.2;  // room between the axes and the outermost points
  const Scale x1{fewest / kInside, most * kInside, kLeft, kLeft + kPanelWidth, true};
  const Scale x2{fewest / kInside, most * kInside, second, second + kPanelWidth, true};
  const Scale y1{slowest / 1.5, fastest * 1.5, bottom, kTop, true};
  const Scale y2{0, best * 1.05, bottom, kTop, false};

  // the legend: as many columns as the longest name leaves
  std::size_t longest = 0;
  for (const Series& series : all) longest = std::max(longest, series.name.size());
  const double column = 44 + kLetter * static_cast<double>(longest) + 16;
  const auto columns =
      static_cast<std::size_t>(std::max(1.0, std::floor((width - kLeft - kRight) / column)));
  const std::size_t rows = (all.size() + columns - 1) / columns + (crosses ? 1 : 0);
  const double legend = bottom + kBelowPanel + 12;
  const double height = legend + kLegendRow * static_cast<double>(rows) + 6;

  std::string svg = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  svg += "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + px(width) + "\" height=\"" +
         px(height) + "\" viewBox=\"0 0 " + px(width) + " " + px(height) +
         "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222222\">\n";
  svg += "<title>" + xml_text(report.graph.name) + ": throughput and efficiency over devices" +
         "</title>\n";
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  svg += label(kLeft, 24, report.graph.name, "start", " font-size=\"16\" font-weight=\"bold\"");
  svg += frame(x1, kTop, tokens ? "Throughput (tokens/s)" : "Throughput (steps/s)", devices);
  for (const double tick : logarithmic_ticks(y1.least, y1.most))
    svg += tick_line(x1, y1, tick, short_number(tick));
  svg += lines(all, x1, y1, [](const SeriesPoint& point) { return point.throughput; });
  svg += frame(x2, kTop, "Scaling efficiency (against the fewest devices)", devices);
  const double step = best <= 1.6 ? 0.2 : std::pow(10.0, std::floor(std::log10(best)));
  for (int tick = 0; step * tick <= y2.most; ++tick)
    svg += tick_line(x2, y2, step * tick, short_number(std::round(step * tick * 100)) + " %");
  svg += segment(x2.begin, y2(1), x2.end, y2(1), "stroke=\"#888888\" stroke-dasharray=\"4 4\"");
  svg += lines(all, x2, y2, [](const SeriesPoint& point) { return point.efficiency; });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double left = kLeft + column * static_cast<double>(i % columns);
    const std::size_t row = i / columns;
    const double middle = legend + kLegendRow * static_cast<double>(row);
    svg += "<polyline points=\"" + px(left) + "," + px(middle) + " " + px(left + 32) + "," +
           px(middle) + "\" " + stroke(all[i]) + "/>\n";
    svg += mark(all[i], left + 16, middle);
    svg += label(left + 40, middle + 4, all[i].name, "start");
  }
  if (crosses) {
    const double middle = legend + kLegendRow * static_cast<double>(rows - 1);
    svg += segment(kLeft + 13, middle - 3, kLeft + 19, middle + 3, kAxis) +
           segment(kLeft + 13, middle + 3, kLeft + 19, middle - 3, kAxis) +
           label(kLeft + 40, middle + 4, "no plan fits the device's memory", "start");
  }
  return svg + "</svg>\n";
}

}  // namespace meshplan
