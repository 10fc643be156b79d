"""One member shared by the tests that leave it running, a fresh database for each test, and members of their own."""

import itertools

import pytest

from member import Member

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_member():
    """A member that lives as long as the session; a test that stops or kills one takes `own_member`."""
    with Member() as member:
        yield member


@pytest.fixture(scope="session")
def shared_client(shared_member):
    with shared_member.client() as client:
        yield client


@pytest.fixture
def client(shared_member, shared_client):
    """A client of the shared member; the member must have survived the test."""
    yield shared_client
    assert shared_member.is_running(), f"the member died:\n{shared_member.log()}"


@pytest.fixture
def db(client):
    """A database of the test's own."""
    name = f"story_{next(_numbers)}"
    yield client[name]
    client.drop_database(name)


@pytest.fixture
def own_member():
    """A running member that the test may kill."""
    with Member() as member:
        yield member
