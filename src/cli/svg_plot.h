#pragma once

#include <string>
#include <vector>

namespace pergola {

/// A point of a plot with the text that stands beside it.
struct PlotPoint {
  double x = 0;
  double y = 0;  ///< positive: the axis is logarithmic
  std::string label;
};

/// A picture (SVG) of points joined by a line: x linear, y logarithmic. At least one point.
std::string svg_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                     std::vector<PlotPoint> points);

}  // namespace pergola
