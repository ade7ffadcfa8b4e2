// Keeps compiled schemas and asks valijson; the only file that includes it.

// g++ 12 sees uninitialised members in <regex> when it compiles for a sanitizer.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "server/flows/argument_check.h"

#include <fmt/format.h>

#include <exception>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"
#include "server/flows/json_document.h"
#include "server/flows/schema_reducer.h"
#include "server/flows/violation_text.h"

// Foreign code that does not compile under our warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <valijson/adapters/boost_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>
#pragma GCC diagnostic pop

namespace callboard::server {
namespace {

using valijson::adapters::BoostJsonAdapter;

constexpr size_t kSchemasMax = 4'096;
constexpr size_t kSchemaBytesMax = 256 << 10;
constexpr size_t kArgumentBytesMax = 256 << 10;
constexpr size_t kWorkMax = 4'000'000;    // values times schema nodes
constexpr int kJsonTextDepthMax = 1'024;  // deeper arguments are refused

struct Compiled {
  ReducedSchema reduced;  // `schema` holds no pointer into it; for the wording
  valijson::Schema schema;
  valijson::Validator validator{valijson::Validator::kStrongTypes};
};

// nullptr: unknown, so everything passes.
std::unique_ptr<Compiled> Compile(std::string_view text, bool with_patterns) {
  if (text.empty() || text.size() > kSchemaBytesMax) return nullptr;
  auto document = ReadJsonDocument(text);
  if (!document.ok() || document->nul) return nullptr;
  try {
    std::optional<ReducedSchema> reduced = ReduceSchema(document->value, with_patterns);
    if (!reduced) return nullptr;
    auto compiled = std::make_unique<Compiled>();
    compiled->reduced = *std::move(reduced);
    valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
    parser.populateSchema(BoostJsonAdapter(compiled->reduced.schema), compiled->schema);
    return compiled;
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace

struct ArgumentCheck::Impl {
  struct Entry {
    std::string key;  // digest, NUL, tool
    std::unique_ptr<Compiled> full;
    std::unique_ptr<Compiled> without_patterns;  // made when first needed
    bool tried_without_patterns = false;
  };
  std::list<Entry> entries;  // most recently used first
  core::StringMap<std::list<Entry>::iterator> by_key;

  Entry& Get(const ToolList& list, const ToolInfo& tool) {
    std::string key;
    key.reserve(list.digest.size() + 1 + tool.name.size());
    key.append(list.digest).append(1, '\0').append(tool.name);
    if (auto found = by_key.find(key); found != by_key.end()) {
      entries.splice(entries.begin(), entries, found->second);
      return entries.front();
    }
    if (entries.size() >= kSchemasMax) {
      by_key.erase(entries.back().key);
      entries.pop_back();
    }
    entries.push_front({key, Compile(tool.input_schema, /*with_patterns=*/true), nullptr, false});
    by_key.emplace(std::move(key), entries.begin());
    return entries.front();
  }

  // What to check `arguments` with; nullptr if nothing.
  static Compiled* Fitting(Entry& entry, const ToolInfo& tool, const JsonDocument& arguments) {
    Compiled* compiled = entry.full.get();
    if (compiled == nullptr) return nullptr;
    if (compiled->reduced.saw_patterns && !arguments.plain_texts) {
      if (!std::exchange(entry.tried_without_patterns, true)) {
        entry.without_patterns = Compile(tool.input_schema, /*with_patterns=*/false);
      }
      compiled = entry.without_patterns.get();
    }
    return compiled;
  }
};

ArgumentCheck::ArgumentCheck() : impl_(std::make_unique<Impl>()) {}
ArgumentCheck::~ArgumentCheck() = default;

absl::Status ArgumentCheck::Check(const ToolList& list, const ToolInfo& tool,
                                  std::string_view raw_arguments) {
  if (raw_arguments.empty()) raw_arguments = "{}";
  if (tool.input_schema.empty() || raw_arguments.size() > kArgumentBytesMax) {
    return absl::OkStatus();
  }
  Impl::Entry& entry = impl_->Get(list, tool);
  if (entry.full == nullptr) return absl::OkStatus();

  auto arguments = ReadJsonDocument(raw_arguments);
  if (!arguments.ok()) {  // broken, or only deeper than we look
    absl::Status valid = core::ValidateJson(raw_arguments, kJsonTextDepthMax);
    if (valid.ok()) return valid;
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("arguments of '{}' are not valid JSON: {}", tool.name, core::Message(valid)));
  }
  if (arguments->huge_number || arguments->nul) return absl::OkStatus();
  Compiled* compiled = Impl::Fitting(entry, tool, *arguments);
  if (compiled == nullptr || arguments->nodes * compiled->reduced.nodes > kWorkMax) {
    return absl::OkStatus();
  }
  try {
    const BoostJsonAdapter value(arguments->value);
    if (compiled->validator.validate(compiled->schema, value, nullptr)) return absl::OkStatus();
    valijson::ValidationResults results;
    compiled->validator.validate(compiled->schema, value, &results);
    std::vector<RawViolation> found;
    for (const auto& error : results) found.push_back({error.context, error.description});
    const std::vector<std::string> violations =
        ExplainViolations(compiled->reduced.schema, arguments->value, std::move(found));
    return core::MakeError(absl::StatusCode::kInvalidArgument,
                           fmt::format("arguments of '{}' do not fit its input schema: {}",
                                       tool.name, fmt::join(violations, "; ")));
  } catch (const std::exception&) {
    return absl::OkStatus();
  }
}

}  // namespace callboard::server
