"""Load a trained model and a chat adapter with transformers and peft alone.

Usage: python load_models.py MODEL_FOLDER ADAPTER_FOLDER
"""

import sys

from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(model_folder: str, adapter_folder: str) -> None:
    """Print a continuation by the model, and an answer by the adapted model."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    prompt = tokenizer("The ", return_tensors="pt").input_ids
    print("model:", tokenizer.decode(model.generate(prompt, max_new_tokens=32, do_sample=False)[0]))

    tokenizer = AutoTokenizer.from_pretrained(adapter_folder)
    chat = AutoPeftModelForCausalLM.from_pretrained(adapter_folder)
    messages = [{"role": "user", "content": "What of assert?"}]
    text = str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    asked = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    written = chat.generate(input_ids=asked, max_new_tokens=32, do_sample=False, eos_token_id=end)
    answer = str(tokenizer.decode(written[0, asked.shape[1] :], skip_special_tokens=True))
    print("chat:", answer)
    assert answer.strip(), "the answer is empty"


if __name__ == "__main__":
    main(*sys.argv[1:])
