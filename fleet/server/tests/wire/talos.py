"""Calls a node with what grpcio makes of Talos' own .proto files.

talos.py ADDRESS CA CERTIFICATE KEY: a call is a line of JSON of standard input, {"call", "request", "most"}; its answer
is a line of standard output. Of a stream the answer has its messages, at most so many.
"""

import json
import sys

import grpc
from google.protobuf import json_format, message_factory
from machine import machine_pb2, machine_pb2_grpc

METHODS = machine_pb2.DESCRIPTOR.services_by_name["MachineService"].methods_by_name


def to_json(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def answer(stub, call, request=None, most=None):
    kind = message_factory.GetMessageClass(METHODS[call].input_type)
    message = json_format.ParseDict(request or {}, kind())
    try:
        answers = getattr(stub, call)(message, timeout=60)
        if not METHODS[call].server_streaming:
            return {"ok": to_json(answers)}
        messages = []
        while most is None or len(messages) < most:
            got = next(answers, None)
            if got is None:
                break
            messages.append(to_json(got))
        answers.cancel()
        return {"ok": messages}
    except grpc.RpcError as error:
        reason = dict(error.trailing_metadata() or ()).get("slipway-reason")
        return {"error": error.code().name, "reason": reason, "message": error.details()}


def main(address, ca, certificate, key):
    def read(path):
        with open(path, "rb") as file:
            return file.read()

    credentials = grpc.ssl_channel_credentials(read(ca), read(key), read(certificate))
    with grpc.secure_channel(address, credentials) as channel:
        stub = machine_pb2_grpc.MachineServiceStub(channel)
        for line in sys.stdin:
            print(json.dumps(answer(stub, **json.loads(line))), flush=True)


main(*sys.argv[1:])
