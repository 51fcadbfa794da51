"""The dialects of applications' endpoints: OpenAI, Cohere, Jina, text-embeddings-inference, vLLM, KServe v1.

Each reads a request's body as a Question, and writes an answer's tensors in its own form. All are pure
functions of bytes, so that a bulk process can do the same work; `router/http/endpoints` serves them over
HTTP.
"""
