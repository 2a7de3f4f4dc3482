// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/prompt_tools.hpp"

#include "tokenizer/dsml.hpp"
#include "tokenizer/python_json.hpp"

#include <string>

namespace bathys::tokenizer {
namespace {

// The model was trained on these words, byte for byte.
constexpr std::string_view kToolsBefore = R"(

## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsAfter = R"(
You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
)";
constexpr std::string_view kResponseFormat =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

void open_tag(PromptWriter& out, std::string_view inside) {
  out.words(dsml::kTagOpen);
  out.words(" ");
  out.words(inside);
}

void write_argument(PromptWriter& out, std::string_view name, bool is_string, std::string_view value) {
  open_tag(out, dsml::kArgumentName);
  out.text(name);
  out.words("\" ");
  out.words(is_string ? dsml::kIsString : dsml::kIsJson);
  out.text(value);
  out.words(dsml::kArgumentEnd);
  out.words("\n");
}

void write_call(PromptWriter& out, const ToolCall& call) {
  open_tag(out, dsml::kCallName);
  out.text(call.name);
  out.words("\">\n");
  const std::optional<Json> arguments = parse_call_arguments(call.arguments);
  if (!arguments) {
    write_argument(out, "arguments", true, call.arguments);
  } else if (arguments->empty()) {
    out.text("\n");
  } else {
    for (const auto& [name, value] : arguments->items()) {
      write_argument(out, name, value.is_string(),
                     value.is_string() ? value.get_ref<const std::string&>() : python_json(value));
    }
  }
  out.words(dsml::kCallEnd);
  out.words("\n");
}

}  // namespace

void write_tools(PromptWriter& out, const std::vector<Tool>& tools) {
  if (tools.empty()) return;
  out.words(kToolsBefore);
  for (const Tool& tool : tools) {
    const Json schema = {{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}};
    out.text(python_json(schema) + "\n");
  }
  out.text(kToolsAfter);
}

void write_response_format(PromptWriter& out, std::string_view schema) {
  if (schema.empty()) return;
  out.text(kResponseFormat);
  out.text(schema);
}

void write_calls(PromptWriter& out, const std::vector<ToolCall>& calls) {
  if (calls.empty()) return;
  out.words(dsml::kCallsOpen);
  for (const ToolCall& call : calls) write_call(out, call);
  out.words(dsml::kCallsClose);
}

}  // namespace bathys::tokenizer
