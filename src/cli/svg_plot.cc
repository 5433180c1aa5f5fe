#include "cli/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pergola {
namespace {

constexpr double kWidth = 640, kHeight = 420, kLeft = 80, kRight = 30, kTop = 50, kBottom = 60;

/// From a value to a place on the page.
struct Axis {
  double low;
  double high;
  double from;
  double to;

  double place(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

Axis x_axis(const std::vector<PlotPoint>& points) {
  return {std::floor(points.front().x - 0.01), std::ceil(points.back().x + 0.01), kLeft, kWidth - kRight};
}

/// In powers of ten.
Axis y_axis(const std::vector<PlotPoint>& points) {
  const auto [low, high] = std::minmax_element(points.begin(), points.end(),
                                               [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
  return {std::floor(std::log10(low->y) - 0.01), std::ceil(std::log10(high->y) + 0.01), kHeight - kBottom, kTop};
}

std::string text(double x, double y, const char* anchor, const std::string& content) {
  std::string escaped;
  for (char c : content) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else {
      escaped += c;
    }
  }
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped);
}

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                     colour);
}

}  // namespace

std::string svg_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                     std::vector<PlotPoint> points) {
  assert(!points.empty());
  std::sort(points.begin(), points.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  const Axis x = x_axis(points), y = y_axis(points);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += text(kWidth / 2, kTop / 2, "middle", title);
  svg += text(kWidth / 2, kHeight - 15, "middle", x_name);
  svg +=
      fmt::format("<g transform=\"translate(20 {}) rotate(-90)\">{}</g>\n", kHeight / 2, text(0, 0, "middle", y_name));
  for (double tick = x.low; tick <= x.high; tick += 1) {
    svg += line(x.place(tick), y.from, x.place(tick), y.to, "#dddddd");
    svg += text(x.place(tick), y.from + 20, "middle", fmt::format("{:g}", tick));
  }
  for (double tick = y.low; tick <= y.high; tick += 1) {
    svg += line(x.from, y.place(tick), x.to, y.place(tick), "#dddddd");
    svg += text(x.from - 8, y.place(tick) + 4, "end", fmt::format("{:g}", std::pow(10.0, tick)));
  }
  std::string path, marks;
  for (const PlotPoint& point : points) {
    const double px = x.place(point.x), py = y.place(std::log10(point.y));
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", px, py);
    marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#1f5fa8\"/>\n", px, py);
    marks += text(px + 8, py - 8, "start", point.label);
  }
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\"/>\n", path);
  return svg + marks + "</svg>\n";
}

}  // namespace pergola
