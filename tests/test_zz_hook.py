import pytest
def test_hook():
    from verifier.network.network import Network
    from verifier.clock import Clock
    Clock.begin(1)
    with pytest.raises(Exception, match="ype"):
        Clock.begin("x")
