// SPDX-License-Identifier: Apache-2.0
// Every importable model is planned and its plan checked, as a user does it.
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/imported_models.h"
#include "support/run_program.h"

namespace meshplan::import_plan_test {
namespace {

using test::ProgramRun;
using test::run_program;
using test::shipped_models;
using test::TemporaryFolder;

std::string config_path(const std::string& name) {
  return MESHPLAN_SOURCE_DIR "/configs/models/" + name + ".json";
}

struct Wanted {
  std::int64_t batch = 64;
  std::int64_t seq = 128;
  std::string layers;  ///< "": all
  std::string mode = "training";
  std::string past = "0";
  std::string attention = "fused";
  std::vector<std::string> plan;  ///< further options of plan
  bool verify = true;
};

/// The plan's JSON; import, plan, check and verify all end well.
nlohmann::json planned(const std::string& name, const Wanted& wanted) {
  INFO(name);
  const TemporaryFolder folder;
  const std::string graph = folder.file("graph.json");
  const std::string plan = folder.file("plan.json");
  std::vector<std::string> import = {"import", "hf", config_path(name), "--quiet", "-o", graph};
  const auto option = [](std::vector<std::string>& to, const char* key, const std::string& value) {
    to.emplace_back(key);
    to.push_back(value);
  };
  option(import, "--batch", std::to_string(wanted.batch));
  if (name.rfind("vit", 0) != 0) option(import, "--seq", std::to_string(wanted.seq));
  if (!wanted.layers.empty()) option(import, "--layers", wanted.layers);
  option(import, "--mode", wanted.mode);
  option(import, "--past", wanted.past);
  option(import, "--attention", wanted.attention);
  std::vector<std::string> search = {"plan", graph, "--cluster", "dgx-h100", "-o", plan};
  option(search, "--mode", wanted.mode);
  search.insert(search.end(), wanted.plan.begin(), wanted.plan.end());
  std::vector<std::vector<std::string>> steps = {
      import, search, {"check", plan, "--graph", graph, "--cluster", "dgx-h100"}};
  if (wanted.verify) steps.push_back({"verify", plan, "--graph", graph});
  for (const std::vector<std::string>& arguments : steps) {
    INFO(arguments[0]);
    const ProgramRun run = run_program(arguments, "", std::chrono::seconds(3000));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
  }
  return nlohmann::json::parse(test::file_text(plan));
}

/// As few layers as keep every kind.
std::string few_layers(const std::string& name) {
  if (name == "deepseek_v3") return "4";
  return name == "gemma3_1b" ? "6" : "2";
}

/// The plans of these models, with few layers, compute what their graphs say.
void plan_few_layers(const std::vector<std::string>& names, const char* devices, const char* mesh) {
  for (const std::string& name : names) {
    Wanted wanted;
    wanted.layers = few_layers(name);
    wanted.plan = {"--devices", devices, "--mesh", mesh};
    CHECK(planned(name, wanted)["cost"]["step_time"].get<double>() > 0);
  }
}

TEST_CASE("A model of every type is planned on 8 devices, checked and verified") {
  std::set<std::string> types;
  std::vector<std::string> names;
  for (const std::string& name : shipped_models()) {
    const auto config = nlohmann::json::parse(test::file_text(config_path(name)));
    if (types.insert(config.at("model_type").get<std::string>()).second) names.push_back(name);
  }
  CHECK(names.size() > 15);
  plan_few_layers(names, "8", "dp=2,tp=4");
}

TEST_CASE("Models of every kind with few layers are planned on 64 devices and verified") {
  plan_few_layers({"llama3_1_8b", "bert_base_uncased", "mixtral_8x7b"}, "64", "dp=8,tp=8");
}

TEST_CASE("The plan of every model with few layers computes what its graph says", "[.slow]") {
  plan_few_layers(shipped_models(), "8", "dp=2,tp=4");
  plan_few_layers(shipped_models(), "64", "dp=8,tp=8");
}

TEST_CASE("Models with eager attention are planned, checked and verified") {
  // shared heads; linear biases by distance; windows and softcaps; learned biases and an encoder
  for (const char* name : {"llama3_1_8b", "bloom_176b", "gemma2_9b", "t5_base"}) {
    Wanted wanted;
    wanted.batch = 8;
    wanted.seq = 64;
    wanted.attention = "eager";
    wanted.layers = few_layers(name);
    wanted.plan = {"--devices", "8", "--mesh", "dp=2,tp=4"};
    CHECK(planned(name, wanted)["cost"]["step_time"].get<double>() > 0);
  }
}

TEST_CASE("Decoding steps are planned with their cache, checked and verified") {
  for (const char* name : {"llama3_1_8b", "gemma3_1b", "deepseek_v2_lite", "gpt_oss_20b", "gpt2"}) {
    Wanted wanted;
    wanted.seq = 1;
    wanted.past = "512";
    wanted.mode = "inference";
    wanted.layers = few_layers(name);
    wanted.plan = {"--devices", "8", "--mesh", "dp=2,tp=4", "--optimizer", "none"};
    const nlohmann::json plan = planned(name, wanted);
    CHECK(plan["memory"]["optimizer"].get<double>() == 0);
    CHECK(plan["memory"]["gradients"].get<double>() == 0);
  }
}

/// How many expert weights of the plan have their experts on different devices.
std::pair<int, int> divided_experts(const nlohmann::json& plan) {
  std::pair<int, int> found;
  for (const auto& [name, tensor] : plan["tensors"].items()) {
    if (name.find("experts.") == std::string::npos || name.find(".weight") == std::string::npos ||
        tensor["shape"].size() != 3)
      continue;
    ++found.second;
    for (const auto& placement : tensor["placements"]) {
      if (placement == "S(0)") {
        ++found.first;
        break;
      }
    }
  }
  return found;
}

TEST_CASE("Models of experts come out with experts on different devices where that pays") {
  Wanted wanted;
  wanted.seq = 1024;
  wanted.plan = {"--devices", "64", "--mesh", "dp=8,ep=8"};
  for (const char* name :
       {"mixtral_8x7b", "qwen3_30b_a3b", "deepseek_moe_16b", "deepseek_v3", "gpt_oss_20b"}) {
    INFO(name);
    wanted.layers = few_layers(name);
    wanted.verify = std::string(name) == "mixtral_8x7b";  // the others take a while
    const auto [divided, all] = divided_experts(planned(name, wanted));
    CHECK(all > 0);
    CHECK(divided == all);
  }
  // sixteen times the tokens are dearer to exchange than the gradients of small experts to sum
  wanted.verify = false;
  wanted.batch = 256;
  wanted.seq = 4096;
  wanted.layers = "2";
  wanted.plan.insert(wanted.plan.end(), {"--microbatches", "4"});
  CHECK(divided_experts(planned("qwen3_30b_a3b", wanted)).first == 0);
  const auto [divided, all] = divided_experts(planned("mixtral_8x7b", wanted));
  CHECK(divided == all);
}

TEST_CASE("Every whole model is planned on 8 and 64 devices, and the plans check", "[.slow]") {
  for (const std::string& name : shipped_models()) {
    for (const char* devices : {"8", "64"}) {
      // what does not fit into the devices' memory is planned as if they had enough
      Wanted wanted;
      wanted.verify = false;
      wanted.plan = {"--devices", devices, "--memory-limit", "64TiB"};
      CHECK(planned(name, wanted)["cost"]["step_time"].get<double>() > 0);
    }
  }
}

}  // namespace
}  // namespace meshplan::import_plan_test
