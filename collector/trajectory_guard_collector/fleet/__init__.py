"""The stream worker: identification and evaluation on a Kafka topic of spans, spread over many processes."""
