#!/usr/bin/env python3
"""The official OpenAI and Anthropic clients against `pergola serve` with the bundled model.

    clients_test.py PERGOLA MODEL_FOLDER

Exit code 77 means skipped: a client is not installed (tests/server/requirements.txt; `.ci/run clients` installs them).
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import unittest

try:
    import anthropic
    import openai
except ImportError as error:
    print(f"SKIPPED: {error}; `.ci/run clients` installs the official clients and runs this", file=sys.stderr)
    sys.exit(77)

KEY = "a-key-of-the-tests"
QUESTION = [{"role": "user", "content": "Tell me about the sea."}]
GREEDY = {"temperature": 0}  # this client has no argument for it
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


class Server:
    """A running server; its address stands in the last line that it prints at start."""

    def __init__(self, program, folder):
        command = [program, "serve", folder, "--port", "0", "--max-sequences", "8", "--context", "2048"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PERGOLA_API_KEY": KEY})
        said = []
        for line in self.process.stderr:
            said.append(line)
            found = re.search(r"serving '(.*)' on (http://\S+)", line)
            if found:
                self.model, self.url = found.groups()
                return
        raise RuntimeError("the server did not start: " + "".join(said))

    def stop(self):
        self.process.terminate()
        self.process.stderr.read()
        return self.process.wait(timeout=60)


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0)

    def ask(self, **more):
        return self.client.chat.completions.create(**{"model": server.model, "messages": QUESTION, "max_tokens": 16, "temperature": 0, **more})

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [server.model])
        self.assertEqual(self.client.models.retrieve(server.model).id, server.model)

    def test_chat(self):
        answer = self.ask()
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertTrue(answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 16)

    def test_chat_stream(self):
        text, usage, reasons = "", None, []
        for chunk in self.ask(stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasons.append(choice.finish_reason)
        self.assertEqual(text, self.ask().choices[0].message.content)
        self.assertEqual(usage.completion_tokens, 16)
        self.assertEqual(reasons[-1], "length")

    def test_several_answers_and_seed(self):
        first = self.ask(n=3, temperature=1.2, seed=5)
        second = self.ask(n=3, temperature=1.2, seed=5)
        texts = [choice.message.content for choice in first.choices]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(texts, [choice.message.content for choice in second.choices])

    def test_logprobs(self):
        answer = self.ask(logprobs=True, top_logprobs=3)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual(len(tokens), 16)
        self.assertEqual(tokens[0].token, tokens[0].top_logprobs[0].token)
        self.assertLessEqual(tokens[0].logprob, 0)

    def test_stop(self):
        whole = self.ask().choices[0].message.content
        stop = whole[len(whole) // 2 :][:3]
        answer = self.ask(stop=[stop])
        self.assertEqual(answer.choices[0].message.content, whole[: whole.index(stop)])
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_completions(self):
        answer = self.client.completions.create(model=server.model, prompt="Once upon a time", max_tokens=8, temperature=0)
        stream = self.client.completions.create(model=server.model, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in stream), answer.choices[0].text)

    def test_responses(self):
        answer = self.client.responses.create(model=server.model, input="Tell me about the sea.", max_output_tokens=16, temperature=0)
        self.assertEqual(answer.output_text, self.ask().choices[0].message.content)
        self.assertEqual(answer.usage.output_tokens, 16)

    def test_responses_stream(self):
        text, last = "", None
        for event in self.client.responses.create(
            model=server.model, input="Tell me about the sea.", max_output_tokens=16, temperature=0, stream=True
        ):
            if event.type == "response.output_text.delta":
                text += event.delta
            last = event
        self.assertEqual(last.type, "response.incomplete")
        self.assertEqual(last.response.output_text, text)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.ask(model="gpt-4")
        with self.assertRaisesRegex(openai.BadRequestError, "temperature must be from"):
            self.ask(temperature=-1)
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()

    def test_many_at_once(self):
        async def one(client, number):
            text = ""
            stream = await client.chat.completions.create(
                model=server.model, messages=[{"role": "user", "content": f"Count to {number}."}], max_tokens=24, temperature=0, stream=True
            )
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
            return text

        async def all_of_them():
            async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY) as client:
                return await asyncio.gather(*(one(client, number) for number in range(24)))

        self.assertEqual(len([text for text in asyncio.run(all_of_them()) if text]), 24)


class OpenAiTools(unittest.TestCase):
    tools = [{"type": "function", "function": {"name": "weather", "description": "Says the weather.", "parameters": WEATHER}}]

    def setUp(self):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0)

    def ask(self, **more):
        return self.client.chat.completions.create(**{"model": server.model, "messages": QUESTION, "max_tokens": 120, "temperature": 0, **more})

    def check_arguments(self, text):
        arguments = json.loads(text)
        self.assertIn(arguments["city"], WEATHER["properties"]["city"]["enum"])
        self.assertIn(arguments["days"], range(1, 10))
        self.assertEqual(len(arguments), 2)

    def test_forced_call(self):
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            answer = self.ask(tools=self.tools, tool_choice=choice, parallel_tool_calls=False)
            self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
            (call,) = answer.choices[0].message.tool_calls
            self.assertEqual(call.function.name, "weather")
            self.check_arguments(call.function.arguments)

    def test_forced_call_stream(self):
        name, arguments, identity = "", "", ""
        for chunk in self.ask(tools=self.tools, tool_choice="required", parallel_tool_calls=False, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                identity += call.id or ""
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        self.assertTrue(identity)
        self.assertEqual(name, "weather")
        self.check_arguments(arguments)

    def test_conversation_with_results(self):
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo", "days": 1}'}}
        messages = QUESTION + [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}]
        answer = self.ask(tools=self.tools, messages=messages, max_tokens=8)
        self.assertGreater(answer.usage.prompt_tokens, 50)

    def test_json_schema(self):
        format = {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": WEATHER}}
        self.check_arguments(self.ask(response_format=format, temperature=1, seed=3).choices[0].message.content)

    def test_json_object(self):
        text = self.ask(response_format={"type": "json_object"}, max_tokens=400).choices[0].message.content
        self.assertTrue(text.lstrip().startswith("{"))

    def test_responses_tools(self):
        tools = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}]
        answer = self.client.responses.create(
            model=server.model, input="Hello.", tools=tools, tool_choice="required", parallel_tool_calls=False, max_output_tokens=120, temperature=0
        )
        calls = [item for item in answer.output if item.type == "function_call"]
        self.assertEqual(len(calls), 1)
        self.check_arguments(calls[0].arguments)
        items = [{"role": "user", "content": "Hello."}, calls[0].to_dict(), {"type": "function_call_output", "call_id": calls[0].call_id, "output": "Rain."}]
        answer = self.client.responses.create(model=server.model, input=items, tools=tools, tool_choice="none", max_output_tokens=8)
        self.assertEqual(answer.usage.output_tokens, 8)

    def test_bad_schema(self):
        format = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "no_such_keyword": 1}}}
        with self.assertRaisesRegex(openai.BadRequestError, "no_such_keyword"):
            self.ask(response_format=format)


class Anthropic(unittest.TestCase):
    tools = [{"name": "weather", "description": "Says the weather.", "input_schema": WEATHER}]

    def setUp(self):
        self.client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)

    def ask(self, **more):
        return self.client.messages.create(**{"model": server.model, "messages": QUESTION, "max_tokens": 16, "extra_body": GREEDY, **more})

    def test_message(self):
        answer = self.ask(system="Be brief.")
        self.assertTrue(answer.content[0].text)
        self.assertEqual(answer.stop_reason, "max_tokens")
        self.assertEqual(answer.usage.output_tokens, 16)

    def test_stream(self):
        with self.client.messages.stream(model=server.model, messages=QUESTION, max_tokens=16, extra_body=GREEDY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, self.ask().content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.usage.output_tokens, 16)

    def test_count(self):
        counted = self.client.messages.count_tokens(model=server.model, messages=QUESTION)
        self.assertGreater(counted.input_tokens, 5)

    def test_errors(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.ask(model="claude")
        with self.assertRaisesRegex(anthropic.BadRequestError, "max_tokens must be from 1"):
            self.ask(max_tokens=0)
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0).messages.create(
                model=server.model, messages=QUESTION, max_tokens=4
            )

    def check_use(self, message):
        self.assertEqual(message.stop_reason, "tool_use")
        (use,) = [block for block in message.content if block.type == "tool_use"]
        self.assertEqual(use.name, "weather")
        self.assertIn(use.input["city"], WEATHER["properties"]["city"]["enum"])
        return use

    def test_tools(self):
        choice = {"type": "any", "disable_parallel_tool_use": True}
        use = self.check_use(self.ask(tools=self.tools, tool_choice=choice, max_tokens=120))
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "Rain."}
        messages = QUESTION + [{"role": "assistant", "content": [use.to_dict()]}, {"role": "user", "content": [result]}]
        self.assertEqual(self.ask(messages=messages, tools=self.tools).usage.output_tokens, 16)

    def test_tools_stream(self):
        choice = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
        with self.client.messages.stream(
            model=server.model, messages=QUESTION, max_tokens=120, extra_body=GREEDY, tools=self.tools, tool_choice=choice
        ) as stream:
            self.check_use(stream.get_final_message())


if __name__ == "__main__":
    program, folder = sys.argv[1:3]
    server = Server(program, folder)
    result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    code = server.stop()
    if code != 0:
        print(f"the server ended with exit code {code}", file=sys.stderr)
    sys.exit(0 if result.wasSuccessful() and code == 0 else 1)
