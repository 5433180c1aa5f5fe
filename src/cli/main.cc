#include <fmt/format.h>

#include "build_facts.h"

int main() {
  fmt::print("pergola {} ({})\n", PERGOLA_VERSION, PERGOLA_COMMIT);
  return 0;
}
