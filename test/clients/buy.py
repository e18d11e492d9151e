"""Buys one unit of the only sale: python3 buy.py URL

The client is made from the engine's OpenAPI document when the program starts. It needs only the standard library.
"""

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


class Refused(Exception):
    """An answer of 400 or more. code is that of the problem document."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status
        try:
            self.code = json.loads(text)["code"]
        except (ValueError, KeyError, TypeError):
            self.code = ""


class Client:
    """Has a method for each operationId of the document: client.getOrder(id="..."). A parameter has the name that the
    document gives it, with "_" for "-" and in small letters: idempotency_key. body is the request's body."""

    def __init__(self, url):
        self.url = url.rstrip("/")
        self.token = None
        with urllib.request.urlopen(self.url + "/openapi.json", timeout=30) as answer:
            self._document = json.load(answer)
        self._operations = {}
        for path, item in self._document["paths"].items():
            for method, operation in item.items():
                if method != "parameters":
                    parameters = item.get("parameters", []) + operation.get("parameters", [])
                    parameters = [self._resolved(p) for p in parameters]
                    self._operations[operation["operationId"]] = method.upper(), path, operation, parameters

    def _resolved(self, node):
        """Returns what a $ref leads to."""
        while "$ref" in node:
            target = self._document
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node

    def __getattr__(self, operation_id):
        if operation_id not in self._operations:
            raise AttributeError(operation_id)
        return lambda body=None, **arguments: self._call(operation_id, body, arguments)

    def _call(self, operation_id, body, arguments):
        method, path, operation, parameters = self._operations[operation_id]
        headers, query = {}, {}
        for parameter in parameters:
            name = parameter["name"]
            argument = name.replace("-", "_").lower()
            if argument not in arguments:
                if parameter.get("required"):
                    raise TypeError(f"{operation_id} needs {argument}")
                continue
            value = str(arguments.pop(argument))
            if parameter["in"] == "path":
                path = path.replace("{" + name + "}", urllib.parse.quote(value, safe=""))
            elif parameter["in"] == "query":
                query[name] = value
            else:
                headers[name] = value
        if arguments:
            raise TypeError(f"{operation_id} has no {', '.join(arguments)}")
        data = None
        if body is not None:
            headers["Content-Type"] = next(iter(operation["requestBody"]["content"]))
            is_form = headers["Content-Type"] == "application/x-www-form-urlencoded"
            data = (urllib.parse.urlencode(body) if is_form else json.dumps(body)).encode()
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        url = self.url + path + ("?" + urllib.parse.urlencode(query) if query else "")
        request = urllib.request.Request(url, method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read().decode()
                return json.loads(text) if "json" in answer.headers.get_content_type() else text
        except urllib.error.HTTPError as refusal:
            raise Refused(refusal.code, refusal.read().decode()) from None


def main(url):
    client = Client(url)
    account = {"name": f"py-{time.time_ns()}", "password": "correct horse"}
    client.register(account)
    client.token = client.logIn(account)["token"]
    sale = client.listSales()["sales"][0]["id"]
    path = client.issuePath(sale=sale)["path"]
    order = client.buy({"quantity": 1}, sale=sale, path=path, idempotency_key=uuid.uuid4(), prefer="wait=10")["id"]
    payment = client.startPayment(id=order)["payment_id"]
    client.choosePayment({"choice": "pay"}, payment=payment)
    try:
        client.getOrder(id="A" * 48)
        raise SystemExit("an order that is not there was answered")
    except Refused as refusal:
        if refusal.code != "not_found":
            raise
    print(f"order {order} is {client.getOrder(id=order)['status']}")


if __name__ == "__main__":
    main(sys.argv[1])
