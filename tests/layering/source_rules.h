// SPDX-License-Identifier: Apache-2.0
// The rules of the source tree that no compiler checks: which module may include what, and what
// every file must carry. The order of the modules is read from cmake/meshplan_module.cmake.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::test {

/// Where a third-party header may be included: anywhere in `anywhere`, in .cpp files of `sources`.
struct ThirdParty {
  std::string_view include;  ///< how the path between <> begins
  std::vector<std::string_view> sources;
  std::vector<std::string_view> anywhere;
};

inline const std::vector<ThirdParty>& third_parties() {
  static const std::vector<ThirdParty> kTable = {
      {"nlohmann/", {"graph", "plan", "search"}, {"apps", "tests", "bench"}},
      {"Eigen/", {"cost_model", "plan", "search"}, {"tests", "bench"}},
      {"zlib.h", {"search"}, {"tests"}},
      {"CLI/", {}, {"apps"}},
      {"spdlog/", {}, {"apps"}},
      {"catch2/", {}, {"tests"}},
  };
  return kTable;
}

/// The modules from low to high, as the build knows them, apps last. Empty: cannot be read.
inline std::vector<std::string> module_order(const std::filesystem::path& root) {
  std::ifstream file(root / "cmake" / "meshplan_module.cmake");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::smatch match;
  if (!std::regex_search(text, match, std::regex(R"(set\(MESHPLAN_LAYERS ([a-z_ ]+)\))")))
    return {};
  std::istringstream words(match[1].str());
  std::vector<std::string> order((std::istream_iterator<std::string>(words)),
                                 std::istream_iterator<std::string>());
  order.emplace_back("apps");
  return order;
}

/// Checks the tree below `root`; one line "path:line: what is wrong" per fault, sorted.
class SourceRules {
 public:
  explicit SourceRules(std::filesystem::path root)
      : root_(std::move(root)), order_(module_order(root_)) {}

  std::vector<std::string> faults() {
    faults_.clear();
    files_ = 0;
    if (order_.empty()) add("cmake/meshplan_module.cmake", 1, "MESHPLAN_LAYERS cannot be read");
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file()) check_file(entry.path());
      if (!entry.is_directory() || name == ".git" || name == "build" || name == ".cache") continue;
      for (const auto& below : std::filesystem::recursive_directory_iterator(entry.path())) {
        if (below.is_regular_file()) check_file(below.path());
      }
    }
    std::sort(faults_.begin(), faults_.end());
    return faults_;
  }

  /// The source files (.h and .cpp) that the last call of faults() read.
  std::size_t source_files() const { return files_; }

 private:
  void add(const std::string& path, std::size_t line, const std::string& what) {
    faults_.push_back(path + ":" + std::to_string(line) + ": " + what);
  }

  void check_file(const std::filesystem::path& file) {
    const std::string path = std::filesystem::relative(file, root_).generic_string();
    const std::string extension = file.extension().string();
    const bool header = extension == ".h";
    const bool source = header || extension == ".cpp";
    const bool script = extension == ".sh" || extension == ".cmake" || extension == ".in" ||
                        path == ".ci/run" || file.filename() == "CMakeLists.txt";
    const bool prose = extension == ".md" || extension == ".json" || file.filename() == "cmd";
    if (!source && !script && !prose) return;
    std::ifstream stream(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);

    if (source || script) check_licence(path, lines);
    if (source) {
      ++files_;
      check_name(path, file.stem().string());
      if (header && std::find(lines.begin(), lines.end(), "#pragma once") == lines.end()) {
        add(path, 1, "a header needs #pragma once");
      }
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (source) check_include(path, header, i + 1, lines[i]);
      check_words(path, i + 1, lines[i]);
    }
  }

  void check_licence(const std::string& path, const std::vector<std::string>& lines) {
    for (std::size_t i = 0; i < std::min<std::size_t>(2, lines.size()); ++i) {
      if (lines[i] == "// SPDX-License-Identifier: Apache-2.0" ||
          lines[i] == "# SPDX-License-Identifier: Apache-2.0") {
        return;
      }
    }
    add(path, 1, "the line \"SPDX-License-Identifier: Apache-2.0\" is missing at the top");
  }

  void check_name(const std::string& path, const std::string& stem) {
    static const std::regex kVague("(^|_)(utils?|common|helpers?|managers?|misc)(_|$)");
    if (std::regex_search(stem, kVague)) add(path, 1, "the name says nothing about the content");
  }

  void check_words(const std::string& path, std::size_t line, const std::string& text) {
    static const std::regex kMachinePath(
        R"((^|[^A-Za-z0-9_.*}])/(home|root|Users|work|workspace|shared|mnt)/)");
    static const std::regex kOpenEnd(std::string("\\b(TO") + "DO|FIX" + "ME|XX" + "X)\\b");
    if (std::regex_search(text, kMachinePath)) add(path, line, "a path of somebody's machine");
    if (std::regex_search(text, kOpenEnd)) add(path, line, "an open end");
  }

  std::optional<std::size_t> rank(std::string_view module) const {
    const auto found = std::find(order_.begin(), order_.end(), module);
    if (found == order_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - order_.begin());
  }

  void check_include(const std::string& path,
                     bool header,
                     std::size_t line,
                     const std::string& text) {
    static const std::regex kInclude(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
    std::smatch match;
    if (!std::regex_search(text, match, kInclude)) return;
    const std::string folder = path.substr(0, path.find('/'));
    const std::string target = match[2].str();
    if (match[1].str() == "\"") {
      check_own(path, folder, line, target);
    } else {
      check_foreign(path, folder, header, line, target);
    }
  }

  void check_own(const std::string& path,
                 const std::string& folder,
                 std::size_t line,
                 const std::string& target) {
    const std::string module = target.substr(0, target.find('/'));
    const auto their_rank = rank(module);
    if (folder == "tests") {
      if (!their_rank && !std::filesystem::exists(root_ / "tests" / target) &&
          !std::filesystem::exists((root_ / path).parent_path() / target)) {
        add(path, line, "\"" + target + "\" is neither a module's header nor one of the tests");
      }
      return;
    }
    if (folder == "bench" && module == "support" &&
        std::filesystem::exists(root_ / "tests" / target)) {
      return;  // what benchmarks share with the tests
    }
    if (!their_rank || target.find("..") != std::string::npos) {
      add(path, line, "\"" + target + "\" does not begin with the name of a module");
      return;
    }
    const auto our_rank = rank(folder);
    if (our_rank && *their_rank > *our_rank) {
      add(path, line, folder + " may not include " + module + ", which is above it");
    }
  }

  void check_foreign(const std::string& path,
                     const std::string& folder,
                     bool header,
                     std::size_t line,
                     const std::string& target) {
    const auto holds = [&](const std::vector<std::string_view>& folders) {
      return std::find(folders.begin(), folders.end(), folder) != folders.end();
    };
    for (const ThirdParty& party : third_parties()) {
      if (target.rfind(party.include, 0) != 0) continue;
      if (holds(party.anywhere) || (!header && holds(party.sources))) return;
      add(path,
          line,
          "<" + target + "> may not be included in " +
              (header && holds(party.sources) ? "a header of " : "") + folder);
      return;
    }
    // What is left is the standard library, or the operating system, which only programs know.
    const bool standard = target.find_first_of("/.") == std::string::npos;
    const bool outside = folder == "apps" || folder == "tests" || folder == "bench";
    if (!standard && !outside) {
      add(path, line, "<" + target + "> is not a header of the standard library");
    }
  }

  std::filesystem::path root_;
  std::vector<std::string> order_;
  std::vector<std::string> faults_;
  std::size_t files_ = 0;
};

}  // namespace meshplan::test
