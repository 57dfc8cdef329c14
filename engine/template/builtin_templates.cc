#include "engine/template/builtin_templates.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/template/text.h"

namespace penstock {
namespace {

// A message's text: a string, or a list of parts of type text.
constexpr char kTextOf[] = R"({%- macro text_of(message) -%}
  {%- if message.content is string -%}
    {{- message.content -}}
  {%- elif message.content -%}
    {%- for part in message.content -%}
      {%- if part.type != 'text' -%}
        {{- raise_exception('a message has a part of type ' ~ part.type ~ '; only text is supported') -}}
      {%- endif -%}
      {{- part.text -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
)";

// For formats without tools.
constexpr char kNoTools[] = R"({%- if tools -%}
  {{- raise_exception('this template has no way to write tools') -}}
{%- endif -%}
{%- for message in messages if message.tool_calls or message.role == 'tool' -%}
  {{- raise_exception('this template has no way to write tool calls') -}}
{%- endfor -%}
{%- for message in messages if message.role not in ['system', 'user', 'assistant'] -%}
  {{- raise_exception('this template has no way to write the role ' ~ message.role) -}}
{%- endfor -%}
)";

// Turns would not end, or the text not begin, as the model knows it.
constexpr char kNeedsEos[] = R"({%- if not eos_token -%}
  {{- raise_exception('the tokenizer has no eos_token, with which this template ends turns') -}}
{%- endif -%}
)";
constexpr char kNeedsBos[] = R"({%- if not bos_token -%}
  {{- raise_exception('the tokenizer has no bos_token, with which this template begins') -}}
{%- endif -%}
)";

constexpr char kChatml[] = R"({%- for message in messages -%}
  {{- '<|im_start|>' ~ message.role ~ '\n' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message) ~ '<|im_end|>\n' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- text_of(message) ~ '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";

constexpr char kLlama3[] = R"({{- bos_token -}}
{%- for message in messages -%}
  {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message) | trim ~ '<|eot_id|>' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- text_of(message) | trim ~ '<|eot_id|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";

// What Qwen's formats have in common: the system message with the tools, tool calls, and the
// answers of tools inside a turn of the user.
constexpr char kQwenHead[] = R"({%- macro calls_of(message, after_text) -%}
  {%- for tool_call in message.tool_calls or [] -%}
    {%- set call = tool_call.function or tool_call -%}
    {%- if after_text or not loop.first -%}
      {{- '\n' -}}
    {%- endif -%}
    {{- '<tool_call>\n{"name": "' ~ call.name ~ '", "arguments": ' -}}
    {{- call.arguments if call.arguments is string else call.arguments | tojson -}}
    {{- '}\n</tool_call>' -}}
  {%- endfor -%}
{%- endmacro -%}
{%- for message in messages if message.role not in ['system', 'user', 'assistant', 'tool'] -%}
  {{- raise_exception('this template has no way to write the role ' ~ message.role) -}}
{%- endfor -%}
{%- set has_system = messages and messages[0].role == 'system' -%}
{%- set system = text_of(messages[0]) if has_system else default_system -%}
{%- if tools -%}
  {{- '<|im_start|>system\n' ~ (system ~ '\n\n' if system) -}}
  {{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' -}}
  {{- 'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' -}}
  {%- for tool in tools -%}
    {{- '\n' ~ tool | tojson -}}
  {%- endfor -%}
  {{- '\n</tools>\n\nFor each function call, return a json object with function name and ' -}}
  {{- 'arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n' -}}
  {{- '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n' -}}
{%- elif has_system or system -%}
  {{- '<|im_start|>system\n' ~ system ~ '<|im_end|>\n' -}}
{%- endif -%}
)";

constexpr char kQwenTurns[] = R"({%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- generation -%}
      {%- set text = text_of(message) -%}
      {{- text ~ calls_of(message, text) ~ '<|im_end|>\n' -}}
    {%- endgeneration -%}
  {%- elif message.role == 'tool' -%}
    {%- if loop.first or loop.previtem.role != 'tool' -%}
      {{- '<|im_start|>user' -}}
    {%- endif -%}
    {{- '\n<tool_response>\n' ~ text_of(message) ~ '\n</tool_response>' -}}
    {%- if loop.last or loop.nextitem.role != 'tool' -%}
      {{- '<|im_end|>\n' -}}
    {%- endif -%}
  {%- elif not (message.role == 'system' and loop.first) -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ text_of(message) ~ '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";

// Qwen3 keeps the thinking of those turns only that follow the last question of the user.
constexpr char kQwen3Turns[] = R"({%- set ns = namespace(last_question=-1) -%}
{%- for message in messages -%}
  {%- set text = text_of(message) -%}
  {%- if message.role == 'user' and not (text.startswith('<tool_response>') and text.endswith('</tool_response>')) -%}
    {%- set ns.last_question = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- if ns.last_question < 0 -%}
  {%- set ns.last_question = messages | length - 1 -%}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- generation -%}
      {%- set text = text_of(message) -%}
      {%- set thinking = '' -%}
      {%- if message.reasoning_content is string -%}
        {%- set thinking = message.reasoning_content -%}
      {%- elif '</think>' in text -%}
        {%- set thinking = text.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
        {%- set text = text.split('</think>')[-1].lstrip('\n') -%}
      {%- endif -%}
      {%- if loop.index0 > ns.last_question and (loop.last or thinking) -%}
        {%- set text_after = text.lstrip('\n') -%}
        {{- '<think>\n' ~ thinking.strip('\n') ~ '\n</think>\n\n' ~ text_after -}}
      {%- else -%}
        {{- text -}}
      {%- endif -%}
      {{- calls_of(message, text) ~ '<|im_end|>\n' -}}
    {%- endgeneration -%}
  {%- elif message.role == 'tool' -%}
    {%- if loop.first or loop.previtem.role != 'tool' -%}
      {{- '<|im_start|>user' -}}
    {%- endif -%}
    {{- '\n<tool_response>\n' ~ text_of(message) ~ '\n</tool_response>' -}}
    {%- if loop.last or loop.nextitem.role != 'tool' -%}
      {{- '<|im_end|>\n' -}}
    {%- endif -%}
  {%- elif not (message.role == 'system' and loop.first) -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ text_of(message) ~ '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {%- if enable_thinking is defined and enable_thinking is false -%}
    {{- '<think>\n\n</think>\n\n' -}}
  {%- endif -%}
{%- endif -%}
)";

// For formats in which the system message is the beginning of the first user's.
constexpr char kSystemFirst[] = R"({%- set system = '' -%}
{%- set turns = messages -%}
{%- if messages and messages[0].role == 'system' -%}
  {%- set system = text_of(messages[0]) ~ '\n\n' -%}
  {%- set turns = messages[1:] -%}
{%- endif -%}
{%- for message in turns -%}
  {%- if message.role != ('user' if loop.index0 is even else 'assistant') -%}
    {{- raise_exception('turns of user and assistant must alternate, a system message may come first') -}}
  {%- endif -%}
{%- endfor -%}
)";

constexpr char kGemma[] = R"({{- bos_token -}}
{%- for message in turns -%}
  {%- if message.role == 'assistant' -%}
    {{- '<start_of_turn>model\n' -}}
    {%- generation -%}
      {{- text_of(message) | trim ~ '<end_of_turn>\n' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- '<start_of_turn>user\n' ~ (system if loop.first) ~ text_of(message) | trim -}}
    {{- '<end_of_turn>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<start_of_turn>model\n' -}}
{%- endif -%}
)";

constexpr char kMistral[] = R"({{- bos_token -}}
{%- for message in turns -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- ' ' ~ text_of(message) | trim ~ eos_token -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- '[INST] ' ~ (system if loop.first) ~ text_of(message) ~ '[/INST]' -}}
  {%- endif -%}
{%- endfor -%}
)";

constexpr char kPhi3[] = R"({%- for message in messages -%}
  {{- '<|' ~ message.role ~ '|>\n' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message) ~ '<|end|>\n' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- text_of(message) ~ '<|end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{{- '<|assistant|>\n' if add_generation_prompt else eos_token -}}
)";

constexpr char kPhi4[] = R"({%- for message in messages -%}
  {{- '<|im_start|>' ~ message.role ~ '<|im_sep|>' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message) ~ '<|im_end|>' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- text_of(message) ~ '<|im_end|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant<|im_sep|>' -}}
{%- endif -%}
)";

constexpr char kAlpaca[] = R"({%- if not system -%}
  {%- set system = 'Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n' -%}
{%- endif -%}
{{- bos_token ~ system -}}
{%- for message in turns -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message) ~ eos_token -}}
    {%- endgeneration -%}
    {{- '\n\n' -}}
  {%- else -%}
    {{- '### Instruction:\n' ~ text_of(message) ~ '\n\n### Response:\n' -}}
  {%- endif -%}
{%- endfor -%}
)";

constexpr char kVicuna[] = R"({{- bos_token -}}
{{- system | trim if system else "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions." -}}
{%- for message in turns -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- ' ' ~ text_of(message) | trim ~ eos_token -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- (' ' if loop.first) ~ 'USER: ' ~ text_of(message) | trim ~ ' ASSISTANT:' -}}
  {%- endif -%}
{%- endfor -%}
)";

constexpr char kZephyr[] = R"({%- for message in messages -%}
  {{- '<|' ~ message.role ~ '|>\n' -}}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {{- text_of(message) ~ eos_token ~ '\n' -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- text_of(message) ~ eos_token ~ '\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|assistant|>\n' -}}
{%- endif -%}
)";

constexpr char kDeepseek[] = R"({{- bos_token -}}
{%- for message in messages if message.role == 'system' -%}
  {{- ('' if loop.first else '\n\n') ~ text_of(message) -}}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {{- '<｜User｜>' ~ text_of(message) -}}
  {%- elif message.role == 'assistant' -%}
    {{- '<｜Assistant｜>' -}}
    {%- generation -%}
      {{- text_of(message) ~ '<｜end▁of▁sentence｜>' -}}
    {%- endgeneration -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<｜Assistant｜>' -}}
{%- endif -%}
)";

constexpr char kQwenSystem[] =
    "{%- set default_system = 'You are Qwen, created by Alibaba Cloud. You are a helpful "
    "assistant.' -%}\n";
constexpr char kQwen3System[] = "{%- set default_system = '' -%}\n";

struct BuiltIn {
  std::string_view name;
  std::vector<std::string_view> parts;  // of the source
  std::string_view mark;                // that a source of the same family has, or ""
};

const std::vector<BuiltIn>& BuiltIns() {
  // Never destroyed: jobs may start while the process ends. Marks are tried in this order.
  static const auto* const templates = new std::vector<BuiltIn>{
      {"qwen3", {kTextOf, kQwen3System, kQwenHead, kQwen3Turns}, "<think>"},
      {"phi4", {kTextOf, kNoTools, kPhi4}, "<|im_sep|>"},
      {"qwen", {kTextOf, kQwenSystem, kQwenHead, kQwenTurns}, "You are Qwen"},
      {"chatml", {kTextOf, kNoTools, kChatml}, "<|im_start|>"},
      {"llama3", {kTextOf, kNoTools, kLlama3}, "<|start_header_id|>"},
      {"gemma", {kTextOf, kNoTools, kNeedsBos, kSystemFirst, kGemma}, "<start_of_turn>"},
      {"mistral", {kTextOf, kNoTools, kNeedsEos, kSystemFirst, kMistral}, "[INST]"},
      {"phi3", {kTextOf, kNoTools, kPhi3}, "<|end|>"},
      {"deepseek", {kTextOf, kNoTools, kDeepseek}, "<｜Assistant｜>"},
      {"alpaca", {kTextOf, kNoTools, kNeedsEos, kSystemFirst, kAlpaca}, "### Instruction"},
      {"vicuna", {kTextOf, kNoTools, kNeedsEos, kSystemFirst, kVicuna}, "ASSISTANT:"},
      {"zephyr", {kTextOf, kNoTools, kNeedsEos, kZephyr}, "<|assistant|>"},
  };
  return *templates;
}

}  // namespace

absl::StatusOr<ChatTemplate> BuiltInTemplate(std::string_view name) {
  for (const BuiltIn& built_in : BuiltIns()) {
    if (built_in.name != name) continue;
    std::string source;
    for (const std::string_view part : built_in.parts) source += part;
    return ChatTemplate::Parse(std::move(source),
                               absl::StrCat("the built-in template ", jinja::Absl(name)));
  }
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrCat("there is no built-in chat template ", jinja::Absl(name),
                            "; there are ", absl::StrJoin(BuiltInTemplateNames(), ", ")));
}

std::vector<std::string> BuiltInTemplateNames() {
  std::vector<std::string> names;
  for (const BuiltIn& built_in : BuiltIns()) names.emplace_back(built_in.name);
  return names;
}

std::string_view SuggestBuiltInTemplate(std::string_view source) {
  const bool chatml = source.find("<|im_start|>") != source.npos;
  for (const BuiltIn& built_in : BuiltIns()) {
    if (source.find(built_in.mark) == source.npos) continue;
    // Other families think too.
    if (built_in.name == "qwen3" && !chatml) continue;
    return built_in.name;
  }
  return "";
}

}  // namespace penstock
